package rig

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var mailScopes = []string{throttle.Global, "tenant", "domain"}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	got, err := ParseLimits(" global=40/1s, 500/20s ; domain=10/1s@100ms;", mailScopes...)
	if err != nil {
		t.Fatal(err)
	}
	want := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(40, time.Second), throttle.Per(500, 20*time.Second)}},
		{Name: "tenant"},
		{Name: "domain", Limits: []throttle.Limit{{Units: 10, Window: time.Second, Precision: 100 * time.Millisecond}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestParseLimitsSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"global":                   `"global" is not scope=units/window`,
		"host=1/1s":                `no scope "host"; there are global, tenant, domain`,
		"tenant=1/1s;tenant=2/1s":  "scope tenant is there twice",
		"tenant=fast":              "scope tenant",
		"global=-1/1s":             "scope global",
		"domain=1/1s,":             "scope domain",
		"domain=10/1s@2s":          "scope domain",
		"global=1/1s;tenant=5/0ms": "scope tenant",
	} {
		if _, err := ParseLimits(text, mailScopes...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParseLimits(f *testing.F) {
	f.Add("global=40/1s,900/20s;tenant=30/1s,250/10s;domain=25/1s,120/10s")
	f.Add("global=1/1s;;tenant=unlimited/1m")
	f.Fuzz(func(t *testing.T, text string) {
		scopes, err := ParseLimits(text, mailScopes...)
		if err == nil && len(scopes) != 3 {
			t.Errorf("%q: %d scopes", text, len(scopes))
		}
	})
}

func TestParseLimitsKnowsItsScopes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"host", "is not scope=units/window"},
		{"tenant=1/1s", `no scope "tenant"; there are global, host`},
		{"host=1/1s;host=2/2s", "scope host is there twice"},
		{"host=fast", "scope host: throttle: limit"},
	} {
		if _, err := ParseLimits(row.text, throttle.Global, "host"); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want %q", row.text, err, row.want)
		}
	}
}
