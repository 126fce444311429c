package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// What the classic rate limiting scripts for Redis can do, each as their published
// example has it. They answer yes or no; here that is a job which may start now or
// not at all: its deadline is the instant of the call.
type policing struct {
	t      testing.TB
	script *scripted
	now    time.Time
	asked  int
}

func newPolicing(t testing.TB, th *throttle.Throttle) *policing {
	t.Helper()
	return &policing{t: t, script: newScripted(th), now: time.UnixMicro(1_800_000_000_000_000)}
}

// allow asks at an instant since the beginning.
func (p *policing) allow(at time.Duration, weight int64, keys map[string]string) bool {
	p.t.Helper()
	p.asked++
	now := p.now.Add(at)
	_, err := p.script.Reserve(now, throttle.Job{ID: fmt.Sprint(p.asked), Weight: weight, Keys: keys, Deadline: now})
	var refused *throttle.DeadlineError
	if err != nil && !errors.As(err, &refused) {
		p.t.Fatalf("at %s: %v", at, err)
	}
	return err == nil
}

// allowed counts the calls that are allowed of n at one instant.
func (p *policing) allowed(n int, at time.Duration, weight int64, keys map[string]string) int {
	p.t.Helper()
	allowed := 0
	for range n {
		if p.allow(at, weight, keys) {
			allowed++
		}
	}
	return allowed
}

func (p *policing) used(at time.Duration, scope, key string) []int64 {
	p.t.Helper()
	usage, err := p.script.Usage(p.now.Add(at), scope, key)
	if err != nil {
		p.t.Fatal(err)
	}
	var used []int64
	for _, limit := range usage.Limits {
		used = append(used, limit.Used)
	}
	return used
}

// TestClassicCarlson: J. Carlson's over_limit_sliding_window with its limits
// [(1, 10), (60, 120), (3600, 240, 60)], the third with a precision of a minute.
func TestClassicCarlson(t *testing.T) {
	t.Parallel()
	limits, err := throttle.ParseLimits("10/1s, 120/1m, 240/1h@1m")
	if err != nil {
		t.Fatal(err)
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		visitor := func(ip, user string) map[string]string { return map[string]string{"ip": ip, "user": user} }
		scopes := []throttle.Scope{{Name: "ip", Limits: limits}, {Name: "user", Limits: limits}}
		const second, minute = time.Second, time.Minute
		p := newPolicing(t, newThrottle(t, client, scopes, nil))
		check := func(why string, want, got any) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got %v, want %v", why, got, want)
			}
		}
		check("10 of 12 in a second", 10, p.allowed(12, 0, 1, visitor("1", "ann")))
		check("a weight of 6, not another", 1, p.allowed(2, second, 6, visitor("1", "ann")))
		check("4 more: what was refused was not counted", 1, p.allowed(1, second, 4, visitor("1", "ann")))
		check("another user from this address", 0, p.allowed(1, second, 1, visitor("1", "bob")))
		check("that refusal was not counted for the user", 10, p.allowed(12, second, 1, visitor("2", "bob")))
		check("used by the first address", []int64{10, 20, 20}, p.used(second, "ip", "1"))
		check("used by the second user", []int64{10, 10, 10}, p.used(second, "user", "bob"))

		// 120 a minute: ten in each second, for the next ten seconds.
		for i := 2; i < 12; i++ {
			check(fmt.Sprintf("second %d", i), 10, p.allowed(11, time.Duration(i)*second, 1, visitor("1", "ann")))
		}
		check("the minute is used up", 0, p.allowed(5, 20*second, 1, visitor("1", "ann")))
		// Its precision is a hundredth of it: what starts leaves with its 600 ms.
		const precision = 600 * time.Millisecond
		check("the first ten have left it", 10, p.allowed(11, minute+precision, 1, visitor("1", "ann")))
		// 240 an hour: ten times a second, once more.
		for i := 61; i < 72; i++ {
			p.allowed(10, time.Duration(i)*second+precision, 1, visitor("1", "ann"))
		}
		check("the hour is used up", 0, p.allowed(5, 30*minute, 1, visitor("1", "ann")))
		check("with its precision of a minute it is, for up to a minute longer", 0,
			p.allowed(1, 60*minute+30*second, 1, visitor("1", "ann")))
		check("the first minute has left", 10, p.allowed(11, 61*minute, 1, visitor("1", "ann")))
	})
}

// TestClassicCarlsonServerTime: redis_time=True, which is the only way here.
func TestClassicCarlsonServerTime(t *testing.T) {
	t.Parallel()
	server, client := expiringServer(t)
	th := newThrottle(t, client, globalScope(throttle.PerSecond(10)), nil)
	at := time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)
	for step, want := range []int{10, 0, 10} {
		if step == 2 {
			at = at.Add(time.Second)
		}
		server.SetTime(at)
		granted := 0
		for i := range 10 {
			got := reserve(t, th, throttle.Job{ID: fmt.Sprint(step, " ", i), Weight: 1})
			if got.Outcome == throttle.Granted {
				granted++
			}
			if !got.Now.Equal(at) {
				t.Fatalf("step %d: decided at %s, want the server's %s", step, got.Now, at)
			}
			if _, err := th.Cancel(t.Context(), got.Job); err != nil { // what is booked
				t.Fatal(err)
			}
		}
		if granted != want {
			t.Errorf("step %d: %d granted, want %d", step, granted, want)
		}
	}
}

// TestClassicOHara: C. O'Hara's "Rate limiting with Redis": a ring of buckets per
// subject, with a bucket interval of 5 s, a span of 10 minutes and an expiry of the
// subject; add and count over the last 30 s, or over any past interval.
func TestClassicOHara(t *testing.T) {
	t.Parallel()
	const interval, span = 5 * time.Second, 10 * time.Minute
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: "subject", Limits: []throttle.Limit{
			{Units: 50, Window: 30 * time.Second, Precision: interval},
			{Units: maxUnits, Window: span, Precision: interval}, // never in the way: the ring to count in
		}}}
		p := newPolicing(t, newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
		subject := map[string]string{"subject": "127.0.0.1"}
		count := func(at, from, to time.Duration) int64 {
			t.Helper()
			units, err := p.script.Count(p.now.Add(at), "subject", "127.0.0.1", from, to)
			if err != nil {
				t.Fatal(err)
			}
			return units
		}
		if got := p.allowed(30, 1*time.Second, 1, subject); got != 30 {
			t.Errorf("first 30 of 50 in 30 s: %d allowed", got)
		}
		if got := p.allowed(30, 12*time.Second, 1, subject); got != 20 {
			t.Errorf("30 more of 50 in 30 s: %d allowed, want 20", got)
		}
		if got := p.allowed(1, 34*time.Second, 1, subject); got != 0 {
			t.Errorf("within 30 s and a bucket: %d allowed, want 0", got)
		}
		if got := p.allowed(40, 35*time.Second, 1, subject); got != 30 {
			t.Errorf("when the first bucket has left: %d allowed, want 30", got)
		}
		for _, c := range []struct {
			at, from, to time.Duration
			want         int64
		}{
			{40 * time.Second, 40 * time.Second, 0, 80},
			{40 * time.Second, 10 * time.Second, 0, 30},
			{40 * time.Second, 30 * time.Second, 10 * time.Second, 20}, // from second 10 to 30
			{40 * time.Second, 20 * time.Second, 10 * time.Second, 0},
			{5 * time.Minute, 5 * time.Minute, 0, 80},
			{5 * time.Minute, 5 * time.Minute, 5*time.Minute - 5*time.Second, 30},
			{10 * time.Minute, span, 0, 80},
			{10*time.Minute + 6*time.Second, span, 0, 50}, // the first bucket has left the ring
			{21 * time.Minute, span, 0, 0},
		} {
			if got := count(c.at, c.from, c.to); got != c.want {
				t.Errorf("at %s, from %s to %s ago: %d counted, want %d", c.at, c.from, c.to, got, c.want)
			}
		}
		// The subject's keys go when the ring is empty: span, lookahead, grace and slack.
		for _, key := range keyNames(t, client, p.script.throttle) {
			if !strings.Contains(key, ":4:key:") && !strings.Contains(key, ":4:ledger:") {
				continue
			}
			if left := ttl(t, client, key); left <= 0 || left > 2*span {
				t.Errorf("key %q expires in %s, want at most twice the span", key, left)
			}
		}
	})
}

// TestClassicSlidingLog: the sliding window log in a sorted set, as most libraries
// have it: EVALSHA, the script loaded again after NOSCRIPT, the count after the
// operation, and open or closed when Redis is away.
func TestClassicSlidingLog(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		client := onceClient(t, proxy.Addr)
		scopes := []throttle.Scope{{Name: "user", Limits: []throttle.Limit{throttle.Per(3, 10*time.Second)}}}
		th := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient})
		p := newPolicing(t, th)
		user := map[string]string{"user": "7"}
		for i, step := range []struct {
			at    time.Duration
			allow bool
			count int64 // after the operation
		}{
			{0, true, 1},
			{4 * time.Second, true, 2},
			{8 * time.Second, true, 3},
			{9 * time.Second, false, 3},
			{10*time.Second - 1000, false, 3},
			{10 * time.Second, true, 3},  // the first is exactly a window old: it has left
			{13 * time.Second, false, 3}, // the second has not
			{14 * time.Second, true, 3},
			{24 * time.Second, true, 1},
		} {
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if got := p.allow(step.at, 1, user); got != step.allow {
				t.Errorf("step %d at %s: allowed %t, want %t", i, step.at, got, step.allow)
			}
			if got := p.used(step.at, "user", "7"); got[0] != step.count {
				t.Errorf("step %d at %s: count %d, want %d", i, step.at, got[0], step.count)
			}
		}
		proxy.Refuse()
		for fallback, open := range map[throttle.Fallback]bool{throttle.FallbackClosed: false, throttle.FallbackOpen: true} {
			th, err := throttle.New(th.Name(), client, scopes, &throttle.Options{Timeout: patient, Fallback: fallback})
			if err != nil {
				t.Fatal(err)
			}
			_, err = th.Reserve(context.Background(), throttle.Job{ID: "away", Weight: 1, Keys: user})
			if (err == nil) != open {
				t.Errorf("fallback %d while Redis is away: got %v, want open %t", fallback, err, open)
			}
		}
	})
}

// TestClassicResourceAndConsumer: the pair of sorted sets under one hash tag, 5 per
// 10 s for a resource and 3 per 10 s for each of its consumers. ExampleThrottle_Reserve_resourceAndConsumer
// prints its sequence.
func TestClassicResourceAndConsumer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		p := newPolicing(t, newThrottle(t, client, resourceAndConsumer(), nil))
		var first, second string
		mark := map[bool]string{true: "+", false: "-"}
		for at := time.Duration(0); at < 20*time.Second; at += 500 * time.Millisecond {
			if at%time.Second == 0 {
				first += mark[p.allow(at, 1, map[string]string{"consumer": "1"})]
			}
			if at%(2*time.Second) == 500*time.Millisecond {
				second += mark[p.allow(at, 1, map[string]string{"consumer": "2"})]
			}
		}
		// As printed for redis-cli -i 1 and redis-cli -i 2 side by side.
		if want := "+++-------+++-------"; first != want {
			t.Errorf("consumer 1, once a second: got %s, want %s", first, want)
		}
		if want := "++---++---"; second != want {
			t.Errorf("consumer 2, every two seconds: got %s, want %s", second, want)
		}
		for _, c := range []struct {
			scope, key string
			want       int64
		}{{throttle.Global, "", 5}, {"consumer", "1", 3}, {"consumer", "2", 2}} {
			if got := p.used(19*time.Second, c.scope, c.key); got[0] != c.want {
				t.Errorf("%s %s: %d used in the end, want %d", c.scope, c.key, got[0], c.want)
			}
		}
		for _, key := range keyNames(t, client, p.script.throttle) {
			if hashTag(key) != p.script.throttle.Name() {
				t.Errorf("key %q is not under the hash tag", key)
			}
		}
	})
}

func resourceAndConsumer() []throttle.Scope {
	return []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.Per(5, 10*time.Second)}},
		{Name: "consumer", Limits: []throttle.Limit{throttle.Per(3, 10*time.Second)}},
	}
}
