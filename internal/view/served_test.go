package view_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestServedText(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{
		0: "", 1: "", 0.6: "the upstream serves 60 %", 0.343: "the upstream serves 34.3 %",
		0.29: "the upstream serves 29 %", 0.001: "the upstream serves 0.1 %",
	} {
		if got := view.ServedText(part); got != want {
			t.Errorf("%v: got %q, want %q", part, got, want)
		}
	}
}

func TestPartText(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{0: "0 %", 0.57: "57 %", 0.999: "99.9 %", 1: "100 %"} {
		if got := view.ShareText(part); got != want {
			t.Errorf("%v: got %q, want %q", part, got, want)
		}
	}
}

// TestServedOfUses: the served share stands with each limit that has units, unless it is all.
func TestServedOfUses(t *testing.T) {
	t.Parallel()
	limits := []inspect.LimitUsage{
		{Limit: throttle.PerMinute(10), Used: 3},
		{Limit: throttle.PerHour(0)},
		{Limit: throttle.Limit{Units: throttle.Unlimited, Window: 24 * time.Hour}},
	}
	for served, want := range map[float64][]float64{1: {0, 0, 0}, 0.6: {0.6, 0, 0}} {
		for i, row := range view.UsesOf(inspect.Usage{Scope: "tenant", Key: "acme", Served: served, Limits: limits}) {
			if row.Served != want[i] {
				t.Errorf("%s, served %v: got %v, want %v", row.Limit, served, row.Served, want[i])
			}
		}
	}
}

// TestWhyServed: the reason of jobs that wait under a key mentions a lower served share.
func TestWhyServed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	u := inspect.Usage{
		Now: now, Served: 0.6, SetFor: "key",
		Limits: []inspect.LimitUsage{{Limit: throttle.PerMinute(10), Used: 6, Free: now.Add(time.Second)}},
	}
	if why, until := view.Why(u); why != "10/1m, 6 used, 0 booked, the upstream serves 60 %, set for the key" ||
		!until.Equal(now.Add(time.Second)) {
		t.Errorf("got %q until %s", why, until)
	}
	u.Paused = now.Add(time.Minute)
	if why, until := view.Why(u); why != "paused" || !until.Equal(u.Paused) {
		t.Errorf("paused: got %q until %s", why, until)
	}
}

// TestFullestByWhatIsServed: a key that has used its whole served share comes before a key that has
// used more of its limit.
func TestFullestByWhatIsServed(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(10)}, Floor: 0.1}}
	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, units := range map[string]int64{"acme": 3, "globex": 8} {
		if _, err := th.Reserve(t.Context(),
			throttle.Job{ID: tenant, Weight: units, Keys: map[string]string{"tenant": tenant}}); err != nil {
			t.Fatal(err)
		}
	}
	said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 3, Remaining: -1}}}
	if _, err := th.Report(t.Context(), "tenant", "acme", said); err != nil {
		t.Fatal(err)
	}
	all, err := view.UsageOfAll(t.Context(), inspect.New(th), "tenant", 20)
	if err != nil || len(all.Rows) != 2 || all.Rows[0].Key != "acme" || all.Rows[0].Ratio != 0.3 ||
		all.Rows[1].Served != 0 {
		t.Errorf("got %+v, %v; want acme first", all.Rows, err)
	}
}

// TestLimitsAreReadAsShown: limits that a person copies from a page are those in force, with their precision.
func TestLimitsAreReadAsShown(t *testing.T) {
	t.Parallel()
	const text = "500/1h@1µs, 20/1m, 3/running@1m, open Mon 09:00-17:00 @UTC"
	limits, err := throttle.ParseLimits(text)
	if shown := view.LimitTexts(limits); err != nil || shown != text {
		t.Errorf("%q, %v, want %q", shown, err, text)
	}
}
