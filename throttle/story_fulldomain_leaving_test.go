package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// openingDomain returns a driver of jobs to one domain, whose limit lets a hundred start at once.
func openingDomain(t *testing.T, tenant throttle.Limit) *driver {
	t.Helper()
	domain := throttle.Limit{Units: 100, Window: 10 * time.Second, Precision: throttle.Exact}
	return newDriverOn(t, quickServer(t),
		tenantsOf(throttle.PerSecond(100_000), tenant,
			throttle.Scope{Name: "domain", Optional: true, Limits: []throttle.Limit{domain}}))
}

// lastOf returns how long after an instant the last job whose ID has this prefix started.
func (d *driver) lastOf(prefix string, began time.Time) (last time.Duration) {
	for id, at := range d.started {
		if strings.HasPrefix(id, prefix) {
			last = max(last, at.Sub(began))
		}
	}
	return last
}

// TestLanesThatLeaveLetOthersIn: lanes that do not use their turn under a full domain, since
// their tenant's own limit is full or their jobs are cancelled, let the next lanes in: the
// domain's room is used at once.
func TestLanesThatLeaveLetOthersIn(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(d *driver, tenant string){
		"their own limit is full": func(d *driver, tenant string) { d.enqueue(1, "else-"+tenant, 1, of(tenant)) },
		"their jobs are cancelled": func(d *driver, tenant string) {
			if _, err := d.script.Cancel(d.now,
				throttle.Job{ID: tenant + "-0", Weight: 1, Keys: toFullDomain(tenant)}); err != nil {
				d.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openingDomain(t, throttle.Limit{Units: 1, Window: 300 * time.Second, Precision: throttle.Exact})
			for i := range 100 {
				d.enqueue(1, fmt.Sprint("first-", i, "-"), 1, toFullDomain(fmt.Sprint("first", i)))
			}
			d.pass(time.Second)
			for i := range 50 {
				d.enqueue(1, fmt.Sprint("gone", i, "-"), 1, toFullDomain(fmt.Sprint("gone", i)))
			}
			d.run(time.Second, 250*time.Millisecond)
			for i := range 50 {
				leave(d, fmt.Sprint("gone", i))
			}
			for i := range 50 {
				d.enqueue(1, fmt.Sprint("other-", i, "-"), 1, toFullDomain(fmt.Sprint("other", i)))
			}
			d.run(6*time.Second, 250*time.Millisecond)
			began := d.now // the domain has room again soon
			d.run(30*time.Second, 250*time.Millisecond)
			last := d.lastOf("other", began)
			t.Logf("%d of 50 started, the last after %s", d.startedBy()["other"], last)
			if d.startedBy()["other"] < 50 || last > 4*time.Second {
				t.Errorf("%d of 50 started, the last %s after the domain had room for all", d.startedBy()["other"], last)
			}
		})
	}
}

// TestResumedDomainKeepsTheOrder: when a pause is ended early, those who waited longer
// start first, and each takes about one pull.
func TestResumedDomainKeepsTheOrder(t *testing.T) {
	t.Parallel()
	d := openingDomain(t, throttle.PerSecond(1000))
	if _, err := d.script.Pause(d.now, "domain", "full", d.now.Add(100*time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		d.enqueue(1, fmt.Sprintf("old-%d-", i), 1, toFullDomain(fmt.Sprint("z", i)))
		d.run(50*time.Millisecond, 50*time.Millisecond)
	}
	for i := range 100 {
		d.enqueue(1, fmt.Sprintf("new-%d-", i), 1, toFullDomain(fmt.Sprint("a", i)))
		d.run(50*time.Millisecond, 50*time.Millisecond)
	}
	if _, err := d.script.Resume(d.now, "domain", "full"); err != nil {
		t.Fatal(err)
	}
	pulls := d.pulls
	d.run(5*time.Second, 250*time.Millisecond)
	by := d.startedBy()
	t.Logf("room for 100: %d old, %d new; %d pulls", by["old"], by["new"], d.pulls-pulls)
	if by["old"] < 98 || d.pulls-pulls > 250 {
		t.Errorf("%d of 100 old jobs have started and %d new ones, with %d pulls", by["old"], by["new"], d.pulls-pulls)
	}
}

// TestSettledLooksAtItsOwnLane: a settlement for less brings back the lane that waits for room of
// its own tenant, even while the domain holds other lanes.
func TestSettledLooksAtItsOwnLane(t *testing.T) {
	t.Parallel()
	limit := func(units int64) throttle.Limit {
		return throttle.Limit{Units: units, Window: 200 * time.Second, Precision: throttle.Exact}
	}
	d := newDriverOn(t, quickServer(t),
		tenantsOf(throttle.PerSecond(100_000), limit(10),
			throttle.Scope{Name: "domain", Limits: []throttle.Limit{limit(20)}}))
	var grant throttle.Reservation
	d.granted = func(r throttle.Reservation) {
		if r.Job.ID == "big-0" {
			grant = r
		}
	}
	d.enqueue(1, "big-", 10, toFullDomain("acme"))
	d.enqueue(1, "next-", 1, toFullDomain("acme"))
	d.run(time.Second, 250*time.Millisecond)
	d.enqueue(1, "fill-", 10, toFullDomain("filler"))
	d.enqueue(1, "wait-", 1, toFullDomain("waiter"))
	d.run(time.Second, 250*time.Millisecond)
	if done, err := d.script.Settle(d.now, grant, 1); err != nil || !done {
		t.Fatalf("settle: %t, %v", done, err)
	}
	began := d.now
	d.run(5*time.Second, 250*time.Millisecond)
	for _, name := range []string{"next", "wait"} {
		if n := d.startedBy()[name]; n != 1 || d.lastOf(name, began) > 2*time.Second {
			t.Errorf("%s: %d started, after %s; want one, at once", name, n, d.lastOf(name, began))
		}
	}
}

// TestManyRefundsGiveNoTurns: jobs that found room at once moved no tag, so refunds of these jobs,
// however many they are, do not let their tenant start before others.
func TestManyRefundsGiveNoTurns(t *testing.T) {
	t.Parallel()
	d := newDriverOn(t, quickServer(t),
		tenantsOf(throttle.Limit{Units: 500, Window: 10 * time.Second, Precision: throttle.Exact},
			throttle.PerSecond(10_000)))
	var grants []throttle.Reservation
	d.granted = func(r throttle.Reservation) {
		if r.Job.Weight == 10 {
			grants = append(grants, r)
		}
	}
	d.enqueue(50, "first-", 10, of("a"))
	d.pass(time.Second)
	d.enqueue(500, "a-", 1, of("a"))
	d.enqueue(500, "b-", 1, of("b"))
	d.run(time.Second, 250*time.Millisecond)
	for _, grant := range grants {
		if _, err := d.script.Settle(d.now, grant, 1); err != nil {
			t.Fatal(err)
		}
	}
	d.run(5*time.Second, 250*time.Millisecond)
	by := d.startedBy()
	t.Logf("started of what 50 refunds made room for: %v", by)
	if by["a"] > by["b"]+2*4*9 {
		t.Errorf("a started %d and b %d, want about the same", by["a"], by["b"])
	}
}

// TestNothingOfTheLineRemains: when all jobs have started or left, Redis has nothing of the
// line any more.
func TestNothingOfTheLineRemains(t *testing.T) {
	t.Parallel()
	client := quickServer(t)
	scopes := tenantsOf(tenPerTenSeconds, throttle.PerSecond(1000), throttle.Scope{
		Name: "domain", Limits: []throttle.Limit{{Units: 5, Window: 5 * time.Second, Precision: throttle.Exact}},
	})
	d := newDriverOn(t, client, scopes)
	for i := range 5 {
		d.enqueue(1, fmt.Sprint("first-", i, "-"), 1, toFullDomain(fmt.Sprint("first", i)))
	}
	d.pass(time.Millisecond)
	for i := range 3 {
		d.enqueue(1, fmt.Sprint("gone", i, "-"), int64(1+i), toFullDomain(fmt.Sprint("gone", i)))
	}
	d.run(100*time.Millisecond, 50*time.Millisecond)
	for i := range 50 {
		d.enqueue(1, fmt.Sprint("other-", i, "-"), int64(1+i%4),
			map[string]string{"tenant": fmt.Sprint("g", i), "domain": fmt.Sprint("x", i)})
	}
	d.run(5*time.Second, 250*time.Millisecond)
	for i := range 3 {
		if _, err := d.script.Cancel(d.now,
			throttle.Job{ID: fmt.Sprint("gone", i, "-0"), Weight: int64(1 + i),
				Keys: toFullDomain(fmt.Sprint("gone", i))}); err != nil {
			t.Fatal(err)
		}
	}
	d.run(300*time.Second, 250*time.Millisecond)
	if n := d.startedBy()["other"]; n != 50 {
		t.Errorf("%d of 50 have started", n)
	}
	prefix := "thr:{" + d.script.throttle.Name() + "}:4:"
	keys, err := client.Keys(t.Context(), strings.NewReplacer("{", `\{`, "}", `\}`).Replace(prefix)+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		switch kind, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), ":"); kind {
		case "lane", "lanes", "wait", "tags", "timers", "jobs", "claims", "overdue":
			t.Errorf("of the line there is still %s", key)
		}
	}
}

// newDriverOn is a driver whose keys are on this server.
func newDriverOn(t *testing.T, client *redis.Client, scopes []throttle.Scope) *driver {
	t.Helper()
	d := newDriver(t, scopes, throttle.Options{})
	d.script = newScripted(newThrottle(t, client, scopes, &throttle.Options{Lookahead: time.Second}))
	return d
}
