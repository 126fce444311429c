package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func expiringServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	return server, defaultClient(t, server.Addr())
}

// ageingServer returns a miniredis whose keys expire by the instants that its scripts get.
func ageingServer(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.RunT(t)
	client := onceClient(t, server.Addr()) // its hooks are not lost
	client.AddHook(ageing{server: server, at: new(atomic.Int64)})
	return server, client
}

// TestPropertyExpiry goes through random histories in which keys expire as time goes on,
// and compares with the model, which forgets nothing: no key goes while anything in it
// counts. Every key has an expiry, except keys with a setting; when the setting is taken back,
// no key remains.
func TestPropertyExpiry(t *testing.T) {
	t.Parallel()
	server, client := ageingServer(t)
	rapid.Check(t, func(t *rapid.T) {
		h := newMachine(t, client)
		a := &aging{machine: h, server: server}
		actions := h.actions()
		actions[""], actions["time passes"], actions["time passes "] = a.check, a.advance, a.advance
		t.Repeat(actions)
		a.takeBack(t)
		a.nothingRemains(t)
	})
}

// TestF15_PropertyEviction takes keys away at any time, as a server with an eviction policy
// does: no call fails, the remaining keys expire, and no job is blocked for good.
func TestF15_PropertyEviction(t *testing.T) {
	t.Parallel()
	server, client := ageingServer(t)
	rapid.Check(t, func(t *rapid.T) {
		a := &aging{machine: newMachine(t, client), server: server, lost: make(map[string]bool)}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": a.advance,
			"evict":       a.evict,
			"arrive":      func(t *rapid.T) { a.asks(t, a.drawNew(t)) },
			"arrive ":     func(t *rapid.T) { a.asks(t, a.drawNew(t)) },
			"come back":   a.comesBack,
			"on time":     a.comesOnTime,
			"cancel":      func(t *rapid.T) { done(t, "Cancel")(a.redis.Cancel(a.now, a.known(t))) },
			"leave":       func(t *rapid.T) { done(t, "Leave")(a.redis.Leave(a.now, []string{a.known(t).ID, "nobody"})) },
			"pull":        a.pulls,
			"pull ":       a.pulls,
			"release":     func(t *rapid.T) { done(t, "Release")(a.redis.Release(a.now, a.grant(t))) },
			"settle":      func(t *rapid.T) { done(t, "Settle")(a.redis.Settle(a.now, a.grant(t), 7)) },
			"refund":      func(t *rapid.T) { done(t, "Refund")(a.redis.Refund(a.now, a.grant(t))) },
			"usage":       func(t *rapid.T) { done(t, "Usage")(a.redis.Usage(a.now, "tenant", "a")) },
			"lines":       func(t *rapid.T) { done(t, "Lines")(a.redis.Lines(a.now, "")) },
			"":            a.everyKeyExpires,
		})
		a.nothingRemains(t)
	})
}

// ageing lets a server's keys expire by the instants that its scripts get.
type ageing struct {
	server *miniredis.Miniredis
	at     *atomic.Int64 // us
}

// DialHook implements redis.Hook.
func (ageing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (ageing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook lets time pass before a script runs. A throttle that is earlier than the last
// one is another history's.
func (a ageing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 4 && strings.HasPrefix(fmt.Sprint(args[0]), "eval") {
			keys, _ := args[2].(int)
			if now, err := strconv.ParseInt(fmt.Sprint(args[3+keys]), 10, 64); err == nil {
				if before := a.at.Swap(now); before > 0 && before < now {
					a.server.FastForward(time.Duration(now-before) * time.Microsecond)
				}
			}
		}
		return next(ctx, cmd)
	}
}

// aging is a history on a miniredis whose keys expire.
type aging struct {
	*machine
	server *miniredis.Miniredis
	passed time.Duration
	lost   map[string]bool // the ends of keys that were taken away
}

// mostPasses is less than the life of the line's keys beyond each window: a line that is not
// pulled for longer is forgotten.
const mostPasses = 29 * 24 * time.Hour

// advance lets much time pass, more often than the machine does.
func (a *aging) advance(t *rapid.T) {
	step := rapid.OneOf(
		rapid.Int64Range(0, 5_000_000),
		rapid.Int64Range(0, 200_000_000),
		rapid.SampledFrom([]int64{1, 1_000_000, 7_000_000, 37_000_000, 60_000_000, 90_000_000, 600_000_000,
			3_600_000_000, 3_700_000_000, 9_000_000_000, 100_000_000_000}),
	).Draw(t, "step")
	if a.passed += time.Duration(step) * time.Microsecond; a.passed < mostPasses {
		a.now = a.now.Add(time.Duration(step) * time.Microsecond)
	}
}

func (a *aging) keys() []string {
	var own []string
	for _, key := range a.server.Keys() {
		if strings.Contains(key, "{"+a.redis.throttle.Name()+"}") {
			own = append(own, key)
		}
	}
	return own
}

// check runs between any two actions. Edges expire too; check has them kept again.
func (a *aging) check(t *rapid.T) {
	a.everyKeyExpires(t)
	if !slices.ContainsFunc(a.keys(), func(key string) bool { return strings.HasSuffix(key, "}:4:edges") }) {
		a.keepEdges(t)
	}
}

func (a *aging) everyKeyExpires(t *rapid.T) {
	for _, key := range a.keys() {
		_, end, _ := strings.Cut(key, "}:4:")
		if a.server.TTL(key) > 0 || a.isLost(end) {
			continue
		}
		text, _ := a.server.Get(key)
		first, _, _ := strings.Cut(text, "\n")
		hasOwn := strings.HasPrefix(end, "key:") && !strings.HasSuffix(first, " -")
		isSet := end == "control" && text != "-"
		if scopeKey, is := strings.CutPrefix(end, "ledger:"); is {
			scopeKey = scopeKey[:strings.LastIndex(scopeKey, ":")]
			hasOwn = a.set.own[scopeKey].is != nil
		}
		if !hasOwn && !isSet {
			t.Fatalf("key %q has no expiry: %q", key, text)
		}
	}
}

// takeBack takes back the settings of run time, which have no expiry.
func (a *aging) takeBack(t *rapid.T) {
	for _, name := range slices.Sorted(maps.Keys(a.set.own)) {
		scope, key, _ := strings.Cut(name, ":")
		if err := a.redis.ResetLimits(a.now, scope, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(a.set.modes)) {
		if err := a.redis.ResetMode(a.now, scope); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingRemains lets time pass until the last key must be gone, and the last start and its
// window are past. Then there is no key, and room for everything.
func (a *aging) nothingRemains(t *rapid.T) {
	var last time.Duration
	for _, key := range a.keys() {
		last = max(last, a.server.TTL(key))
	}
	a.server.FastForward(last)
	a.now = a.now.Add(last)
	keys := slices.DeleteFunc(a.keys(),
		func(key string) bool { _, end, _ := strings.Cut(key, "}:4:"); return a.isLost(end) })
	if len(keys) > 0 {
		t.Fatalf("after %s there is still %q", last, keys)
	}
	for !allOpen(a.now) {
		a.now = a.now.Add(time.Hour)
	}
	for _, tenant := range []string{"a", "b", "c"} {
		job := throttle.Job{ID: "last of " + tenant, Weight: 1, Keys: map[string]string{"tenant": tenant, "domain": "x"}}
		got, err := a.redis.Reserve(a.now, job)
		if err != nil || got.Outcome != throttle.Granted || got.Hold != nil {
			t.Fatalf("after %s: %s got %+v, %v; want room", last, job.ID, got, err)
		}
		done(t, "Refund")(a.redis.Refund(a.now, got))
		got.Cooldowns = map[string]time.Duration{throttle.Global: 0, "domain": 0} // which the jobs share
		done(t, "Done")(a.redis.Done(a.now, got))
	}
}

// evict takes a key away.
func (a *aging) evict(t *rapid.T) {
	keys := a.keys()
	if len(keys) == 0 {
		t.Skip("nothing to take away")
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	_, end, _ := strings.Cut(key, "}:4:")
	a.lost[end] = true
	a.server.Del(key)
}

// isLost tolerates nothing.
func (a *aging) isLost(string) bool { return false }

// asks reserves for a job, which may be refused for its weight or its deadline.
func (a *aging) asks(t *rapid.T, job throttle.Job) {
	a.jobs[job.ID] = job
	r, err := a.redis.Reserve(a.now, job)
	var late *throttle.DeadlineError
	switch {
	case errors.As(err, &late):
		return
	case err != nil:
		t.Fatalf("Reserve: %v", err)
	case r.Outcome == throttle.Booked:
		a.slots = append(a.slots, r)
	case r.Outcome == throttle.Granted:
		a.grants[job.ID+" "+job.Nonce] = r
	}
}

func (a *aging) comesBack(t *rapid.T) {
	job := a.known(t)
	job.Nonce, job.Deadline = a.nonce(), time.Time{}
	a.asks(t, job)
}

func (a *aging) comesOnTime(t *rapid.T) {
	if len(a.slots) == 0 {
		t.Skip("no slot yet")
	}
	i := rapid.IntRange(0, len(a.slots)-1).Draw(t, "slot")
	slot := a.slots[i]
	a.slots = slices.Delete(a.slots, i, i+1)
	if slot.Start.After(a.now) {
		a.now = slot.Start
	}
	job := slot.Job
	job.Nonce, job.Deadline, job.Plan = a.nonce(), time.Time{}, false
	a.asks(t, job)
}

func (a *aging) pulls(t *rapid.T) {
	pulled, err := a.redis.Pull(a.now)
	done(t, "Pull")(pulled, err)
	for _, r := range pulled.Booked {
		r.Job = a.jobs[r.Job.ID]
		a.slots = append(a.slots, r)
	}
}

func (a *aging) grant(t *rapid.T) throttle.Reservation {
	if len(a.grants) == 0 {
		t.Skip("no grant yet")
	}
	return a.grants[rapid.SampledFrom(slices.Sorted(maps.Keys(a.grants))).Draw(t, "grant")]
}

// done fails the test if a call fails.
func done(t *rapid.T, call string) func(value any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
	}
}
