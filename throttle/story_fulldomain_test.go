package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// tenPerTenSeconds lets one start each second, once its starts are spread.
var tenPerTenSeconds = throttle.Limit{Units: 10, Window: 10 * time.Second, Precision: throttle.Exact}

// fullDomain returns a driver whose jobs all go to one domain. The domain is full, with its starts
// a second apart; no other limit is.
func fullDomain(t *testing.T, client *redis.Client) *driver {
	t.Helper()
	scopes := tenantsOf(throttle.PerSecond(100_000), throttle.PerSecond(1000),
		throttle.Scope{Name: "domain", Limits: []throttle.Limit{tenPerTenSeconds}})
	d := newDriver(t, scopes, throttle.Options{})
	if client != nil {
		d = newDriverOn(t, client, scopes)
	}
	for i := range 10 {
		d.enqueue(1, fmt.Sprint("first", i, "-"), 1, toFullDomain("first"))
		d.pass(time.Second)
	}
	return d
}

func toFullDomain(tenant string) map[string]string {
	return map[string]string{"tenant": tenant, "domain": "full"}
}

// startedBy counts starts by the part of the jobs' IDs before the dash.
func (d *driver) startedBy() map[string]int {
	by := make(map[string]int)
	for id := range d.started {
		name, _, _ := strings.Cut(id, "-")
		by[name]++
	}
	return by
}

// TestFullDomainIsShared: tenants that wait for the same full domain take turns.
func TestFullDomainIsShared(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	d := fullDomain(t, nil)
	for i := range 5 {
		d.enqueue(100, fmt.Sprintf("t%d-", i), 1, toFullDomain(fmt.Sprint("t", i)))
	}
	d.run(100*time.Second, 50*time.Millisecond)
	by := d.startedBy()
	t.Logf("started in 100 s, one a second: %v", by)
	for i := range 5 {
		if n := by[fmt.Sprint("t", i)]; n < 18 || n > 22 {
			t.Errorf("t%d has started %d jobs of about 20", i, n)
		}
	}
}

// TestFullDomainIsSharedByShares: of tenants that wait for the same full domain one gets
// three times as much.
func TestFullDomainIsSharedByShares(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	scopes := tenantsOf(throttle.PerSecond(100_000), throttle.PerSecond(1000),
		throttle.Scope{Name: "domain", Limits: []throttle.Limit{tenPerTenSeconds}})
	d := newDriver(t, scopes, throttle.Options{Shares: map[string]int{"b": 3}})
	for _, tenant := range []string{"a", "b", "c"} {
		d.enqueue(200, tenant+"-", 1, toFullDomain(tenant))
	}
	d.run(150*time.Second, 50*time.Millisecond)
	by := d.startedBy()
	t.Logf("started in 150 s: %v", by)
	if by["b"] < 85 || by["b"] > 105 || by["a"]-by["c"] > 12 || by["c"]-by["a"] > 12 {
		t.Errorf("started %v of 150 and the first 10, want 3 of 5 for b and the same for the others", by)
	}
}

// TestManyShareAFullDomain: more tenants than a sweep finds lanes have their turn each
// before anybody has a second one.
func TestManyShareAFullDomain(t *testing.T) {
	t.Parallel()
	const tenants = 250
	d := fullDomain(t, quickServer(t))
	for i := range tenants {
		d.enqueue(3, fmt.Sprintf("t%d-", i), 1, toFullDomain(fmt.Sprint("t", i)))
	}
	d.run(tenants*time.Second, 250*time.Millisecond)
	served := 0
	for name, n := range d.startedBy() {
		if name[0] == 't' && n > 0 {
			served++
		}
	}
	t.Logf("%d starts went to %d of %d tenants", len(d.started)-10, served, tenants)
	if served < tenants*9/10 {
		t.Errorf("%d of %d tenants have started a job, with room for one of each", served, tenants)
	}
}

// TestFullDomainIsNoHerd: the cost of a start under a full limit does not grow with the number of
// jobs that wait for it.
func TestFullDomainIsNoHerd(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for _, tenants := range []int{10, 1000} {
		d := fullDomain(t, quickServer(t))
		for i := range tenants {
			d.enqueue(400/tenants+2, fmt.Sprintf("t%d-", i), 1, toFullDomain(fmt.Sprint("t", i)))
		}
		d.run(time.Second, 250*time.Millisecond) // all are looked at once
		started, pulls := len(d.started), d.pulls
		d.run(30*time.Second, 250*time.Millisecond)
		starts := len(d.started) - started
		perStart := float64(d.pulls-pulls) / float64(starts)
		t.Logf("%d tenants wait: %d starts, %.1f pulls for each", tenants, starts, perStart)
		if starts < 29 || perStart > 4 {
			t.Errorf("%d tenants: %d starts of 30, %.1f pulls for each", tenants, starts, perStart)
		}
	}
}

// TestNewcomersDoNotPass: jobs of other tenants that come later to a full domain start
// behind those that wait for it.
func TestNewcomersDoNotPass(t *testing.T) {
	t.Parallel()
	d := fullDomain(t, quickServer(t))
	for i := range 30 { // 30 s of work
		d.enqueue(1, fmt.Sprintf("old-%d-", i), 1, toFullDomain(fmt.Sprint("t", i)))
	}
	began := d.now
	for n := range 300 { // five a second, of which one can start
		d.enqueue(1, fmt.Sprintf("new-%d-", n), 1, toFullDomain(fmt.Sprint("n", n)))
		d.run(200*time.Millisecond, 50*time.Millisecond)
	}
	last := time.Duration(0)
	for id, at := range d.started {
		if strings.HasPrefix(id, "old") {
			last = max(last, at.Sub(began))
		}
	}
	by := d.startedBy()
	t.Logf("%d of 30 old jobs started, the last after %s, and %d newcomers", by["old"], last, by["new"])
	if by["old"] < 30 || last > 36*time.Second {
		t.Errorf("%d of 30 jobs that came first have started, the last after %s; alone it takes 30 s", by["old"], last)
	}
}

// TestNamesDoNotDecide: tenants that wait with one job each are not passed by tenants that come
// later with one job each, whatever their names are.
func TestNamesDoNotDecide(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"a", "z"}, {"z", "a"}} {
		d := newDriver(t, tenantsOf(tenPerTenSeconds, throttle.PerSecond(1000)), throttle.Options{})
		for i := range 10 {
			d.enqueue(1, fmt.Sprint("first", i, "-"), 1, of("m"))
			d.pass(time.Second)
		}
		for i := range 20 { // 20 s of work
			d.enqueue(1, fmt.Sprintf("old-%d-", i), 1, of(fmt.Sprint(names[0], i)))
		}
		began, last := d.now, time.Duration(0)
		for n := range 60 { // as many as can start
			d.enqueue(1, fmt.Sprintf("new-%d-", n), 1, of(fmt.Sprint(names[1], n)))
			d.run(time.Second, 50*time.Millisecond)
		}
		for id, at := range d.started {
			if strings.HasPrefix(id, "old") {
				last = max(last, at.Sub(began))
			}
		}
		if by := d.startedBy(); by["old"] < 20 || last > 24*time.Second {
			t.Errorf(
				"old tenants %s, newcomers %s: %d of 20 old jobs have started, the last after %s; alone it takes 20 s",
				names[0], names[1], by["old"], last)
		}
	}
}

// TestSharesAreOfWhatIsTaken: a tenant that is charged more than its jobs take, and settles, gets
// as much as a tenant that is charged what its jobs take.
func TestSharesAreOfWhatIsTaken(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	d := newDriver(t, tenantsOf(throttle.Limit{Units: 20, Window: 10 * time.Second, Precision: throttle.Exact},
		throttle.PerSecond(1000)), throttle.Options{})
	d.granted = func(r throttle.Reservation) {
		if r.Job.Weight > 1 {
			if done, err := d.script.Settle(d.now, r, 1); err != nil || !done {
				t.Fatalf("settle: %t, %v", done, err)
			}
		}
	}
	d.enqueue(400, "a-", 5, of("a"))
	d.enqueue(400, "b-", 1, of("b"))
	d.run(200*time.Second, 100*time.Millisecond)
	by := d.startedBy()
	t.Logf("started, all of one unit in the end: %v", by)
	if a, b := float64(by["a"]), float64(by["b"]); a < 0.8*b || b < 0.8*a {
		t.Errorf("one unit each in the end, and %v have started", by)
	}
}
