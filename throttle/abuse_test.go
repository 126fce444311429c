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

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestT4_T9_GrantIsGivenBackByItsOwnerAlone: nobody who lacks a grant's nonce, or has it
// for another job, tenant or set of ledgers, gets a unit of it back; its owner does once.
func TestT4_T9_GrantIsGivenBackByItsOwnerAlone(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), nil)
		own := reserve(t, th, throttle.Job{ID: "own", Weight: 4, Keys: of("acme")})
		other := reserve(t, th, throttle.Job{ID: "other", Weight: 4, Keys: of("evil")})
		steals := map[string]func(*throttle.Reservation){
			"a nonce that was guessed":      func(r *throttle.Reservation) { r.Job.Nonce = "guessed" },
			"the nonce of an own grant":     func(r *throttle.Reservation) { r.Job.Nonce = other.Job.Nonce },
			"an own tenant":                 func(r *throttle.Reservation) { r.Job.Keys, r.Ledgers = other.Job.Keys, other.Ledgers },
			"an own tenant, its ledgers":    func(r *throttle.Reservation) { r.Job.Keys = other.Job.Keys },
			"own ledgers":                   func(r *throttle.Reservation) { r.Ledgers = other.Ledgers },
			"an own job with another nonce": func(r *throttle.Reservation) { r.Job.ID = other.Job.ID },
		}
		for what, steal := range steals {
			unchanged(t, client, th, func() {
				stolen := own
				steal(&stolen)
				for call, give := range map[string]func() (bool, error){
					"settled":   func() (bool, error) { return th.Settle(t.Context(), stolen, 1) },
					"refunded":  func() (bool, error) { return th.Refund(t.Context(), stolen) },
					"cancelled": func() (bool, error) { return th.Cancel(t.Context(), stolen.Job) },
					"released":  func() (bool, error) { return th.Release(t.Context(), stolen.Job) },
				} {
					if done, err := give(); done {
						t.Errorf("%s by %s: %t, %v; want nothing done", call, what, done, err)
					}
				}
			})
		}
		if done, err := th.Settle(t.Context(), own, 1); !done || err != nil {
			t.Fatalf("settled by its owner: %t, %v", done, err)
		}
		unchanged(t, client, th, func() {
			for range 3 {
				if done, err := th.Refund(t.Context(), own); done || err != nil {
					t.Errorf("given back again: %t, %v; want nothing done", done, err)
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
	usage, err := th.Usage(t.Context(), "tenant", tenant)
	if err != nil {
		t.Fatal(err)
	}
	return usage.Limits[0].Used
}

// TestT9_ReplayedGrantPaysForNobodyElse: the ID and the nonce of a grant, asked for again
// by another tenant, start nothing that is not charged to that tenant.
func TestT9_ReplayedGrantPaysForNobodyElse(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(50)), nil)
		own := reserve(t, th, throttle.Job{ID: "own", Weight: 5, Keys: of("acme"), Nonce: "seen"})
		reserve(t, th, throttle.Job{ID: "fills", Weight: 5, Keys: of("evil")})
		replayed := reserve(t, th, throttle.Job{ID: own.Job.ID, Weight: 5, Keys: of("evil"), Nonce: "seen"})
		if replayed.Outcome == throttle.Granted {
			t.Errorf("evil, who has used all: %+v; want no grant on acme's charge", replayed)
		}
		if used := usedOf(t, th, "acme"); used != 5 {
			t.Errorf("acme has used %d, want 5", used)
		}
	})
}

// nowPassed is a client that notes what scripts are told of the time.
type nowPassed struct {
	redis.Scripter
	calls int
	told  []any
}

func (c *nowPassed) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	c.calls++
	if text, is := args[0].(string); !is || text != "" && !strings.HasPrefix(text, "%") && !strings.HasPrefix(text, "~") {
		c.told = append(c.told, args[0]) // set.lua has no time: its first argument is a field
	}
	return c.Scripter.EvalSha(ctx, hash, keys, args...)
}

// TestT5_ClientsCannotPassTime: a throttle tells Redis no time, and nothing that is
// exported, nor anything in production code, makes it.
func TestT5_ClientsCannotPassTime(t *testing.T) {
	t.Parallel()
	passed := &nowPassed{Scripter: miniClient(t)}
	th := hostileThrottle(t, passed)
	hostileHistory(t, th, throttle.Job{ID: "id", Weight: 1, Keys: map[string]string{"tenant": "a", "domain": "b"}})
	if _, err := th.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(passed.told) > 0 || passed.calls < 10 {
		t.Errorf("%d calls of scripts, told the time %v; want it never", passed.calls, passed.told)
	}

	clock := reflect.TypeFor[func() time.Time]()
	for _, exported := range []reflect.Type{reflect.TypeFor[throttle.Options](), reflect.TypeFor[throttle.Job](), reflect.TypeFor[throttle.Scope](), reflect.TypeFor[throttle.Limit]()} {
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

// isClockOf tells whether an expression is the field now of a throttle, t.now.
func isClockOf(expr ast.Expr) bool {
	field, is := expr.(*ast.SelectorExpr)
	if !is || field.Sel.Name != "now" {
		return false
	}
	owner, is := field.X.(*ast.Ident)
	return is && (owner.Name == "t" || owner.Name == "th")
}

// TestT7_T8_SquatterLosesItsOwnShareOnly: a tenant that floods the throttle with jobs that
// never come to their slots costs another one no more than its share: what others ask for
// starts at half of the limit's pace. What nobody came for is given up.
func TestT7_T8_SquatterLosesItsOwnShareOnly(t *testing.T) {
	t.Parallel()
	const squatters, jobs = 500, 40
	d := newDriver(t, tenantsOf(throttle.PerSecond(10), throttle.PerSecond(1000)), throttle.Options{})
	d.absent = func(id string) bool { return strings.HasPrefix(id, "squatter") }
	d.enqueue(squatters, "squatter", 1, of("evil"))
	d.run(2*time.Second, 50*time.Millisecond)
	d.enqueue(jobs, "honest", 1, of("acme"))
	came := d.now
	d.run(15*time.Second, 50*time.Millisecond)
	for i := range jobs {
		at := d.started[fmt.Sprint("honest", i)]
		bound := time.Duration(i+1)*time.Second/5 + throttle.DefaultLookahead + time.Second
		if wait := at.Sub(came); at.IsZero() || wait > bound {
			t.Errorf("honest job %d started after %v, want within %v", i, wait, bound)
		}
	}

	d.run(2*time.Minute, 250*time.Millisecond) // the squatter's line is booked to its end
	d.run(11*time.Minute, time.Second)
	page, err := d.script.Lines(d.now, "")
	if err != nil || len(page.Lines) > 0 {
		t.Errorf("lines %+v, %v; want none", page.Lines, err)
	}
	line, err := d.server.HKeys("thr:{" + d.script.throttle.Name() + "}:3:line")
	if err == nil && len(line) > 0 {
		t.Errorf("the line still has %d fields: %.200q", len(line), line)
	}
	usage, err := d.script.Usage(d.now, throttle.Global, "")
	if err != nil || usage.Limits[0].Booked != 0 {
		t.Errorf("usage %+v, %v; want nothing booked", usage, err)
	}
}

// TestF56_T7_FloodIsBookedToTheLookaheadOnly: there is no cap on what waits, since what
// waits in line is neither booked nor charged: of two floods no more than the lookahead
// has room for is promised at any time, and both start alike.
func TestF56_T7_FloodIsBookedToTheLookaheadOnly(t *testing.T) {
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
	if total := started['a'] + started['b']; total < 19*perSecond || started['a'] < total/2-perSecond || started['b'] < total/2-perSecond {
		t.Errorf("started %d of a and %d of b in 20 s, want %d each", started['a'], started['b'], 10*perSecond)
	}
}
