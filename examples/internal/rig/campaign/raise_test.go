package campaign

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestParseRaise(t *testing.T) {
	t.Parallel()
	got, err := ParseRaise(" acme = 0s 2/1s;  10s 4/1s ;20s -")
	if err != nil {
		t.Fatal(err)
	}
	want := Raise{Tenant: "acme", Steps: []Step{{0, throttle.PerSecond(2)},
		{10 * time.Second, throttle.PerSecond(4)}, {20 * time.Second, throttle.Limit{}}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Raise{}, Step{})); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if none, err := ParseRaise(" "); err != nil || none.Steps != nil {
		t.Errorf("of nothing: got %+v, %v", none, err)
	}
	for text, want := range map[string]string{
		"acme":                      "is not tenant=time limit",
		"=0s 1/1s":                  "is not tenant=time limit",
		"acme=":                     "is not a time and a limit",
		"acme=0s":                   "is not a time and a limit",
		"acme=soon 1/1s":            "soon is not a duration",
		"acme=-1s 1/1s":             "-1s is not a duration",
		"acme=0s fast":              "fast",
		"acme=1s 1/1s;1s 2/1s":      "before the step before it",
		"acme=0s 2/1s;1s 2/1s":      "is not more than 2/1s",
		"acme=0s 2/1s;1s 9/2s":      "is not more than 2/1s",
		"acme=0s 2/1s;1s -;2s 3/1s": "after the last step",
	} {
		if _, err := ParseRaise(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}
