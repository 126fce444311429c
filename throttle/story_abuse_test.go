package throttle_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestT4_T9_GrantIsGivenBackOnce: its owner can settle a grant once, whatever it calls afterwards.
// Cancel gives none of it back, whatever nonce, ID or tenant it gets. For a start that was not
// granted nothing is given back either.
func TestT4_T9_GrantIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), nil)
		own := reserve(t, th, throttle.Job{ID: "own", Nonce: "own", Weight: 4, Keys: of("acme")})
		other := reserve(t, th, throttle.Job{ID: "other", Nonce: "other", Weight: 4, Keys: of("evil")})
		for what, steal := range map[string]func(*throttle.Job){
			"its own":                       func(*throttle.Job) {},
			"a nonce that was guessed":      func(j *throttle.Job) { j.Nonce = "guessed" },
			"no nonce":                      func(j *throttle.Job) { j.Nonce = "" },
			"the nonce of an own grant":     func(j *throttle.Job) { j.Nonce = other.Job.Nonce },
			"an own tenant":                 func(j *throttle.Job) { j.Keys = other.Job.Keys },
			"an own job with another nonce": func(j *throttle.Job) { j.ID = other.Job.ID },
		} {
			unchanged(t, client, th, func() {
				stolen := own.Job
				steal(&stolen)
				if done, err := th.Cancel(t.Context(), stolen); done || err != nil {
					t.Errorf("cancelled with %s: %t, %v; want nothing done", what, done, err)
				}
			})
		}
		elsewhere := own
		elsewhere.Start = own.Start.Add(-time.Minute)
		if _, err := th.Refund(t.Context(), elsewhere); err != nil || usedOf(t, th, "acme") != 4 {
			t.Errorf("refunded a minute before its start: %v, acme has used %d, want 4", err, usedOf(t, th, "acme"))
		}
		if done, err := th.Settle(t.Context(), own, 1); !done || err != nil {
			t.Fatalf("settled by its owner: %t, %v", done, err)
		}
		unchanged(t, client, th, func() {
			for call, give := range map[string]func() (bool, error){
				"settled":   func() (bool, error) { return th.Settle(t.Context(), own, 1) },
				"refunded":  func() (bool, error) { return th.Refund(t.Context(), own) },
				"cancelled": func() (bool, error) { return th.Cancel(t.Context(), own.Job) },
				"released":  func() (bool, error) { return th.Driver().Release(t.Context(), own) },
			} {
				if done, err := give(); done || err != nil {
					t.Errorf("%s again: %t, %v; want nothing done", call, done, err)
				}
			}
		})
		if used := usedOf(t, th, "acme"); used != 1 {
			t.Errorf("acme has used %d, want 1", used)
		}
	})
}

func usedOf(t testing.TB, th *throttle.Throttle, tenant string) int64 {
	t.Helper()
	usage, err := inspect.New(th).Usage(t.Context(), "tenant", tenant)
	if err != nil {
		t.Fatal(err)
	}
	return usage.Limits[0].Used
}

// TestT9_ReplayedGrantPaysForNobodyElse: the ID and the nonce of a grant whose answer was
// lost, asked for again by another tenant, for another job or for another weight, start
// nothing that is not charged to that one; its owner has it then.
func TestT9_ReplayedGrantPaysForNobodyElse(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, _ *redis.Client) {
		th := newThrottle(t, onceClient(t, proxy.Addr), tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), nil)
		reserve(t, th, throttle.Job{ID: "fills", Weight: 5, Keys: of("evil")})
		own := throttle.Job{ID: "own", Weight: 3, Keys: of("acme"), Nonce: "seen"}
		proxy.DropNextReply("evalsha")
		asked := time.Now()
		_, err := th.Reserve(t.Context(), own)
		unavailable(t, "reply lost", err, "other")
		for what, job := range map[string]throttle.Job{
			"another tenant": {ID: own.ID, Weight: 3, Keys: of("evil"), Nonce: "seen"},
			"another job":    {ID: "else", Weight: 3, Keys: of("acme"), Nonce: "seen"},
			"another weight": {ID: own.ID, Weight: 4, Keys: of("acme"), Nonce: "seen"},
		} {
			if r := reserve(t, th, job); r.Outcome == throttle.Granted || r.Replayed {
				t.Errorf("%s: %+v; want no grant on the charge of another", what, r)
			}
			job.Nonce = ""
			if _, err := th.Cancel(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		if r := reserve(t, th, own); r.Outcome != throttle.Granted || !r.Replayed && isKept(asked) {
			t.Errorf("its owner: %+v; want the grant", r)
		}
		if used := usedOf(t, th, "acme"); used != 3 {
			t.Errorf("acme has used %d, want 3", used)
		}
	})
}

// nowPassed is a client that notes the time that scripts get.
type nowPassed struct {
	redis.Scripter
	calls int
	told  []any
}

func (c *nowPassed) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	c.calls++
	if args[0] != "" {
		c.told = append(c.told, args[0])
	}
	return c.Scripter.EvalSha(ctx, hash, keys, args...)
}

// TestT5_ClientsCannotPassTime: a throttle passes no time to Redis, and no exported name and no
// production code can make it do so.
func TestT5_ClientsCannotPassTime(t *testing.T) {
	t.Parallel()
	passed := &nowPassed{Scripter: miniClient(t)}
	th := hostileThrottle(t, passed)
	hostileHistory(t, th, throttle.Job{ID: "id", Weight: 1, Keys: map[string]string{"tenant": "a", "domain": "b"}})
	if _, err := inspect.New(th).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(passed.told) > 0 || passed.calls < 10 {
		t.Errorf("%d calls of scripts, told the time %v; want it never", passed.calls, passed.told)
	}

	clock := reflect.TypeFor[func() time.Time]()
	for _, exported := range []reflect.Type{reflect.TypeFor[throttle.Options](), reflect.TypeFor[throttle.Job](),
		reflect.TypeFor[throttle.Scope](), reflect.TypeFor[throttle.Limit]()} {
		for i := range exported.NumField() {
			if exported.Field(i).Type == clock {
				t.Errorf("%s.%s is a clock", exported.Name(), exported.Field(i).Name)
			}
		}
	}
	read := 0
	look := func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if isClockOf(left) {
					t.Errorf("production code sets a throttle's clock: %v", left)
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND && isClockOf(n.X) {
				t.Error("production code takes the address of a throttle's clock")
			}
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				pair, is := element.(*ast.KeyValueExpr)
				if name, named := n.Type.(*ast.Ident); is && named && name.Name == "Throttle" && fmt.Sprint(pair.Key) == "now" {
					t.Error("production code makes a throttle with a clock")
				}
			}
		case *ast.SelectorExpr:
			if isClockOf(n) {
				read++
			}
		}
		return true
	}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, look)
	}
	if read == 0 {
		t.Error("no use of a throttle's clock found; this test has gone blind")
	}
}

// isClockOf reports whether an expression is the field now of a throttle, t.now.
func isClockOf(expr ast.Expr) bool {
	field, is := expr.(*ast.SelectorExpr)
	if !is || field.Sel.Name != "now" {
		return false
	}
	owner, is := field.X.(*ast.Ident)
	return is && (owner.Name == "t" || owner.Name == "th")
}

// TestT7_T8_SquatterLosesItsOwnShareOnly: a tenant that floods the throttle with jobs that
// never come to their slots costs another tenant no more than its share: the other's jobs
// start at half of the limit's pace. Bookings whose jobs did not come are given up.
func TestT7_T8_SquatterLosesItsOwnShareOnly(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const squatters, honest = 500, 40
	d := newDriver(t, tenantsOf(throttle.PerSecond(10), throttle.PerSecond(1000)), throttle.Options{})
	d.absent = func(id string) bool { return strings.HasPrefix(id, "squatter") }
	d.enqueue(squatters, "squatter", 1, of("evil"))
	d.run(2*time.Second, 50*time.Millisecond)
	d.enqueue(honest, "honest", 1, of("acme"))
	came := d.now
	d.run(15*time.Second, 50*time.Millisecond)
	for i := range honest {
		at := d.started[fmt.Sprint("honest", i)]
		bound := time.Duration(i+1)*time.Second/5 + time.Second + time.Second
		if wait := at.Sub(came); at.IsZero() || wait > bound {
			t.Errorf("honest job %d started after %v, want within %v", i, wait, bound)
		}
	}

	d.run(2*time.Minute, 250*time.Millisecond) // the squatter's line is booked to its end
	d.run(11*time.Minute, time.Second)         // and forgotten
	page, err := d.script.Lines(d.now, "")
	if err != nil || len(page.Lines) > 0 {
		t.Errorf("lines %+v, %v; want none", page.Lines, err)
	}
	jobs, err := d.server.HKeys("thr:{" + d.script.throttle.Name() + "}:4:jobs")
	if err == nil && len(jobs) > 0 {
		t.Errorf("%d jobs are still known: %.200q", len(jobs), jobs)
	}
	usage, err := d.script.Usage(d.now, throttle.Global, "")
	if err != nil || usage.Limits[0].Booked != 0 {
		t.Errorf("usage %+v, %v; want nothing booked", usage, err)
	}
}

// TestF56_T7_FloodIsBookedToTheLookaheadOnly: the number of waiting jobs has no bound, since jobs
// in line are neither booked nor charged: no more jobs of two floods are booked at any time
// than the lookahead has room for, and both start alike.
func TestF56_T7_FloodIsBookedToTheLookaheadOnly(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const flood, perSecond = 1000, 10
	d := newDriver(t, tenantsOf(throttle.PerSecond(perSecond), throttle.PerSecond(1000)), throttle.Options{})
	for i := range flood {
		d.ask(throttle.Job{ID: fmt.Sprint("a", i), Weight: 1, Keys: of("a")})
		d.ask(throttle.Job{ID: fmt.Sprint("b", i), Weight: 1, Keys: of("b")})
	}
	for range 20 {
		usage, err := d.script.Usage(d.now, throttle.Global, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := usage.Limits[0]; got.Used > perSecond || got.Booked > 2*perSecond {
			t.Errorf("%d used and %d booked of %d a second, with a lookahead of a second", got.Used, got.Booked, perSecond)
		}
		d.run(time.Second, 50*time.Millisecond)
	}
	started := map[byte]int{}
	for id := range d.started {
		started[id[0]]++
	}
	if total := started['a'] + started['b']; total < 19*perSecond || started['a'] < total/2-perSecond ||
		started['b'] < total/2-perSecond {
		t.Errorf("started %d of a and %d of b in 20 s, want %d each", started['a'], started['b'], 10*perSecond)
	}
}
