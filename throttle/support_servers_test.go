package throttle_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// onServers runs a test on miniredis and on a real Redis.
func onServers(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		if longtest.Watched && redistest.Available(t) {
			t.Skip("the race detector watches the same test on a real Redis")
		}
		t.Parallel()
		test(t, miniClient(t))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
}

func miniClient(t testing.TB) *redis.Client {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newThrottle returns a throttle with a name of its own, so that tests can share
// a server, with time for a busy machine and a lookahead without end, in which
// nobody waits in line.
func newThrottle(t interface {
	Helper()
	Fatal(args ...any)
}, client redis.Scripter, scopes []throttle.Scope, opts *throttle.Options,
) *throttle.Throttle {
	t.Helper()
	var options throttle.Options
	if opts != nil {
		options = *opts
	}
	if options.Timeout == 0 {
		options.Timeout = patient
	}
	if options.Logger == nil {
		options.Logger = zap.NewNop()
	}
	if options.Lookahead == 0 {
		options.Lookahead = maxWindow
	}
	th, err := throttle.New("t"+rand.Text(), client, scopes, &options)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// whole has go-cmp compare a reservation with its lane.
var whole = cmp.AllowUnexported(throttle.Reservation{})

// scripted is a throttle that is told the time: a throttletest.Subject.
type scripted struct {
	throttle *throttle.Throttle
	told     atomic.Pointer[time.Time] // a throttle gives lost grants back beside the calls
}

func newScripted(th *throttle.Throttle) *scripted {
	s := &scripted{throttle: th}
	s.at(time.Time{})
	th.SetNow(s.now)
	return s
}

// at sets the time.
func (s *scripted) at(now time.Time) { s.told.Store(&now) }

func (s *scripted) now() time.Time { return *s.told.Load() }

func (s *scripted) Reserve(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	s.at(now)
	return s.throttle.Reserve(context.Background(), job)
}

func (s *scripted) ReserveAll(now time.Time, jobs []throttle.Job) []throttle.Answer {
	s.at(now)
	return s.throttle.ReserveAll(context.Background(), jobs)
}

func (s *scripted) Peek(now time.Time, job throttle.Job) (throttle.Reservation, error) {
	s.at(now)
	return s.throttle.Peek(context.Background(), job)
}

func (s *scripted) Cancel(now time.Time, job throttle.Job) (bool, error) {
	s.at(now)
	return s.throttle.Cancel(context.Background(), job)
}

func (s *scripted) Release(now time.Time, granted throttle.Reservation) (bool, error) {
	s.at(now)
	return s.throttle.Driver().Release(context.Background(), granted)
}

func (s *scripted) Leave(now time.Time, ids []string) ([]bool, error) {
	s.at(now)
	return s.throttle.Driver().Leave(context.Background(), ids)
}

func (s *scripted) Usage(now time.Time, scope, key string) (inspect.Usage, error) {
	s.at(now)
	return inspect.New(s.throttle).Usage(context.Background(), scope, key)
}

func (s *scripted) Count(now time.Time, scope, key string, from, to time.Duration) (int64, error) {
	s.at(now)
	return inspect.New(s.throttle).Count(context.Background(), scope, key, from, to)
}

func (s *scripted) Pull(now time.Time, ended ...throttle.Reservation) (throttle.Pulled, error) {
	s.at(now)
	return s.throttle.Driver().Pull(context.Background(), ended...)
}

func (s *scripted) Lines(now time.Time, from string) (inspect.LinesPage, error) {
	s.at(now)
	return inspect.New(s.throttle).Lines(context.Background(), from)
}

func (s *scripted) Settle(now time.Time, granted throttle.Reservation, actual int64) (bool, error) {
	s.at(now)
	return s.throttle.Settle(context.Background(), granted, actual)
}

func (s *scripted) SettleCosts(now time.Time, granted throttle.Reservation, actual map[string]int64) (bool, error) {
	s.at(now)
	return s.throttle.SettleCosts(context.Background(), granted, actual)
}

func (s *scripted) Refund(now time.Time, granted throttle.Reservation) (bool, error) {
	s.at(now)
	return s.throttle.Refund(context.Background(), granted)
}

func (s *scripted) Done(now time.Time, granted ...throttle.Reservation) ([]bool, error) {
	s.at(now)
	return s.throttle.Done(context.Background(), granted...)
}

func (s *scripted) Renew(now time.Time, granted ...throttle.Reservation) ([]bool, error) {
	s.at(now)
	return s.throttle.Renew(context.Background(), granted...)
}

func (s *scripted) Report(now time.Time, scope, key string, r throttle.Report) (throttle.Adaptation, error) {
	s.at(now)
	return s.throttle.Report(context.Background(), scope, key, r)
}

func (s *scripted) Pause(now time.Time, scope, key string, until time.Time) (time.Time, error) {
	s.at(now)
	return inspect.New(s.throttle).Pause(context.Background(), scope, key, until)
}

func (s *scripted) Resume(now time.Time, scope, key string) (bool, error) {
	s.at(now)
	return inspect.New(s.throttle).Resume(context.Background(), scope, key)
}

func (s *scripted) SetLimits(now time.Time, scope, key string, limits []throttle.Limit, until time.Time) error {
	s.at(now)
	return inspect.New(s.throttle).SetLimits(context.Background(), scope, key, limits, inspect.Until(until))
}

func (s *scripted) ResetLimits(now time.Time, scope, key string) error {
	s.at(now)
	return inspect.New(s.throttle).ResetLimits(context.Background(), scope, key)
}

func (s *scripted) SetMode(now time.Time, scope string, mode throttle.Mode, until time.Time) error {
	s.at(now)
	return inspect.New(s.throttle).SetMode(context.Background(), scope, mode, inspect.Until(until))
}

func (s *scripted) ResetMode(now time.Time, scope string) error {
	s.at(now)
	return inspect.New(s.throttle).ResetMode(context.Background(), scope)
}

// drain pulls as a worker does until there is nothing to pull.
func drain(t testing.TB, s *scripted, now time.Time) []throttle.Reservation {
	t.Helper()
	var all []throttle.Reservation
	for range 1000 {
		pulled, err := s.Pull(now)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pulled.Booked...)
		if pulled.Next.IsZero() || pulled.Next.After(now) {
			return all
		}
	}
	t.Fatal("pulled 1000 times: it does not end")
	return nil
}

func globalScope(limits ...throttle.Limit) []throttle.Scope {
	return []throttle.Scope{{Name: throttle.Global, Limits: limits}}
}

// tenantAndGlobal are the scopes of most tests: two keyed, one shared.
func tenantAndGlobal(tenant, global throttle.Limit) []throttle.Scope {
	return []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{tenant}},
		{Name: throttle.Global, Limits: []throttle.Limit{global}},
	}
}

func of(tenant string) map[string]string { return map[string]string{"tenant": tenant} }

// nameOf is a throttle's name of a test's own.
func nameOf(*testing.T) string { return rand.Text() }

// behindProxy runs a test on a real Redis and a miniredis of its own, each behind
// a faulty network.
func behindProxy(t *testing.T, test func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client)) {
	t.Helper()
	for name, start := range map[string]func(t *testing.T) string{
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis":     func(t *testing.T) string { return redistest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			test(t, redistest.NewProxy(t, addr), defaultClient(t, addr))
		})
	}
}

// defaultClient has go-redis' defaults: it sends again what was not answered, and
// heeds no context's deadline.
func defaultClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// onceClient sends nothing again. Its pool is large, since go-redis tells of the last refused
// connection for a while when as many were refused as the pool has.
func onceClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 100,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// used asks over another connection what the global scope has used and booked.
func used(t testing.TB, direct *redis.Client, name string, scopes []throttle.Scope) (used, booked int64) {
	t.Helper()
	th, err := throttle.New(name, direct, scopes, &throttle.Options{Timeout: patient, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := inspect.New(th).Usage(t.Context(), throttle.Global, "")
	if err != nil {
		t.Fatalf("usage: %v", err)
	}
	return usage.Limits[0].Used, usage.Limits[0].Booked
}

func unavailable(t testing.TB, what string, err error, failure string) *throttle.UnavailableError {
	t.Helper()
	var u *throttle.UnavailableError
	if !errors.As(err, &u) || !errors.Is(err, throttle.ErrUnavailable) {
		t.Fatalf("%s: got %v, want an *UnavailableError", what, err)
	}
	if u.Failure != failure {
		t.Fatalf("%s: got failure %s (%v), want %s", what, u.Failure, err, failure)
	}
	return u
}
