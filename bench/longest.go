package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // G505: Redis names scripts by it
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// longestCall bounds every call of a script, in every setting.
const longestCall = 10 * time.Millisecond

// scripts has the names of the throttle's scripts by their SHA-1.
var scripts = func() map[string]string {
	names := make(map[string]string)
	for name, text := range map[string]string{
		"reserve": lua.Reserve, "pull": lua.Pull, "leave": lua.Leave, "settle": lua.Settle, "running": lua.Running,
		"report": lua.Report,
		"set":    lua.Set, "usage": lua.Usage, "lines": lua.Lines, "check": lua.Check,
	} {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // G401: Redis names scripts by it
		names[hex.EncodeToString(sum[:])] = name
	}
	return names
}()

// setting is a bad setting: the state before it, and the calls that are made in it.
type setting struct {
	name string
	run  func(ctx context.Context, b *bench, client *redis.Client) error
}

var settings = []setting{
	{"a limit raised from 100 to 10,000", raised},
	{"four exact limits of 700 to 1,000, heavy and light jobs", exactLimits},
	{"two full exact ledgers of 1,000 entries", fullLedgers},
	{"many in line, of 10,000 tenants", manyWaiting},
	{"many in line for a scope that opens", openingHours},
	{"200 tenants with a claim each", manyClaims},
	{"40,000 timers, all looked at anew", manyTimers},
	{"2,000 places that are renewed and handed on", manyPlaces},
	{"two scope keys of 1,000 bookings whose gaps alternate", alternatingGaps},
	{"exact limits of 100 raised to 1,000, all used at once", raisedExact},
	{"950 that run in sub-windows of their own", longTails(1)},
	{"950 that run in sub-windows of their own, under eight scopes", longTails(8)},
	{"100 raised to 200,000, 60,000 starts, a heavy job", raisedFar},
	{"100,000 waiting tenants of priority 1", manyStanding},
	{"a forecast over 100 busy tenants", busyTenants},
	{"job IDs of 1 KB, 4 KB and 1 MB", longIDs},
	{"64 limits of 100, heavy and light jobs", manyLimits},
}

// longest looks for the longest call of each script in bad settings, by the server's CPU
// time: on a busy machine, the time that passes would say nothing.
func longest(ctx context.Context, b *bench) error {
	for _, setting := range settings {
		if !strings.Contains(setting.name, b.setting) {
			continue
		}
		if err := withServer(ctx, func(s *server) error { return b.longestIn(ctx, s, setting) }); err != nil {
			return fmt.Errorf("%s: %w", setting.name, err)
		}
	}
	return nil
}

func (b *bench) longestIn(ctx context.Context, s *server, setting setting) error {
	client := s.client()
	defer client.Close() //nolint:errcheck // nothing is lost with it
	calls := &timed{server: s, cpu: make(map[string][]time.Duration)}
	client.AddHook(calls)
	if err := setting.run(ctx, b, client); err != nil {
		return err
	}
	text, n, over, most := "", 0, 0, time.Duration(0)
	for _, name := range slices.Sorted(maps.Keys(calls.cpu)) {
		of := calls.cpu[name]
		slices.Sort(of)
		slices.Reverse(of)
		text += "; " + name
		for _, d := range of[:min(len(of), 3)] {
			text += fmt.Sprintf(" %.1f", micros(d)/1000)
		}
		for _, d := range of {
			if n++; d > longestCall {
				over++
			}
		}
		most = max(most, of[0])
	}
	b.say("%s: %d calls, %d above %s; the longest, ms of CPU%s", setting.name, n, over, longestCall, text)
	b.most("longest call, ms of CPU", micros(most)/1000, micros(longestCall)/1000)
	return nil
}

// passing is a hook of go-redis that changes nothing, for hooks to embed.
type passing struct{}

// DialHook changes nothing.
func (passing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing: no script is called in a pipeline.
func (passing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// scriptOf returns the name of the script that a command calls, and nothing if it calls none.
func scriptOf(command redis.Cmder) string {
	if command.Name() != "evalsha" {
		return ""
	}
	sum, _ := command.Args()[1].(string)
	return scripts[sum]
}

// timed notes how long each call of a script takes, and makes calls go one after the other, because once a minute a
// throttle reads its line in the background.
type timed struct {
	passing
	server *server
	mu     sync.Mutex
	cpu    map[string][]time.Duration // the CPU time of each call, by the script's name
}

// ProcessHook notes a call of a script.
func (t *timed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		name := scriptOf(command)
		if name == "" {
			return next(ctx, command)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		before, err := t.server.cpu(ctx)
		if err != nil {
			return err
		}
		failed := next(ctx, command)
		after, err := t.server.cpu(ctx)
		t.cpu[name] = append(t.cpu[name], after-before)
		if failed != nil {
			return failed
		}
		return err
	}
}

// drive pulls and redeems due bookings for a while.
func drive(ctx context.Context, th *throttle.Throttle, length time.Duration) error {
	driver := th.Driver()
	var booked []throttle.Job
	for end := time.Now().Add(length); time.Now().Before(end); {
		pulled, err := driver.Pull(ctx)
		if err != nil {
			return err
		}
		for _, r := range pulled.Booked {
			r.Job.Weight = 1
			booked = append(booked, r.Job)
		}
		some := booked[:min(len(booked), 64)]
		booked = booked[len(some):]
		for _, answer := range th.ReserveAll(ctx, some) {
			if answer.Err != nil {
				return answer.Err
			}
		}
		if len(pulled.Booked) == 0 {
			if err := sleep(ctx, 2*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// look makes every call that changes nothing.
func look(ctx context.Context, th *throttle.Throttle, scope, key string, back time.Duration) error {
	_, err := inspect.New(th).Usage(ctx, scope, key)
	_, counted := inspect.New(th).Count(ctx, scope, key, back, 0)
	_, lines := inspect.New(th).Lines(ctx, "")
	return errors.Join(err, counted, lines)
}

func raised(ctx context.Context, b *bench, client *redis.Client) error {
	th, err := open(client, "raised", nil, limits{throttle.PerMinute(100)}, &throttle.Options{Lookahead: time.Minute})
	if err != nil {
		return err
	}
	l := &line{throttle: th, driver: th.Driver(), tenants: 1000}
	if err := l.fill(ctx, b.waiting/10); err != nil {
		return err
	}
	if err := drive(ctx, th, 500*time.Millisecond); err != nil {
		return err
	}
	if err := inspect.New(th).SetLimits(ctx, throttle.Global, "", limits{throttle.PerMinute(10_000)}); err != nil {
		return err
	}
	return errors.Join(drive(ctx, th, 2*time.Second), look(ctx, th, throttle.Global, "", time.Minute))
}

func exactLimits(ctx context.Context, _ *bench, client *redis.Client) error {
	var all limits
	for i, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		all = append(all, throttle.Limit{Units: 700 + 100*int64(i), Window: window, Precision: throttle.Exact})
	}
	th, err := open(client, "exact", all, all, &throttle.Options{Lookahead: time.Minute})
	if err != nil {
		return err
	}
	for i := range 6000 {
		j := job("exact-"+strconv.Itoa(i), "tenant-"+strconv.Itoa(i%3))
		j.Weight = []int64{1, 1, 2, 1, 30, 1, 500}[i%7]
		r, err := th.Reserve(ctx, j)
		if err != nil {
			return err
		}
		if r.Outcome == throttle.Granted && i%5 == 0 {
			if _, err := th.Settle(ctx, r, j.Weight/2); err != nil {
				return err
			}
		}
	}
	return errors.Join(drive(ctx, th, time.Second), look(ctx, th, throttle.Global, "", time.Hour))
}

func fullLedgers(ctx context.Context, _ *bench, client *redis.Client) error {
	full := limits{{Units: longLedger, Window: 4 * time.Second, Precision: throttle.Exact}}
	th, err := open(client, "full", full, full, &throttle.Options{Lookahead: 5 * time.Second})
	if err != nil {
		return err
	}
	var first throttle.Reservation
	for i := range longLedger + 3000 {
		r, err := th.Reserve(ctx, job("full-"+strconv.Itoa(i), "acme"))
		if err != nil {
			return err
		}
		if r.Outcome == throttle.Granted && i%100 == 0 {
			first = r
		}
	}
	if _, err := th.Refund(ctx, first); err != nil {
		return err
	}
	return errors.Join(look(ctx, th, "tenant", "acme", 4*time.Second), drive(ctx, th, 5*time.Second),
		look(ctx, th, throttle.Global, "", 4*time.Second))
}

func manyWaiting(ctx context.Context, b *bench, client *redis.Client) error {
	th, err := open(client, "many", limits{throttle.PerSecond(100)}, limits{throttle.PerSecond(2000)}, nil)
	if err != nil {
		return err
	}
	l := &line{throttle: th, driver: th.Driver(), tenants: 10_000}
	if err := l.fill(ctx, b.waiting); err != nil {
		return err
	}
	if err := drive(ctx, th, 2*time.Second); err != nil {
		return err
	}
	var gone []string
	for n := range b.waiting / 10 {
		gone = append(gone, l.id(l.joined-1-n))
	}
	if _, err := l.driver.Leave(ctx, gone); err != nil {
		return err
	}
	return errors.Join(drive(ctx, th, time.Second), look(ctx, th, throttle.Global, "", time.Second))
}

// manyClaims makes each of many tenants wait with a heavy job, before light ones.
func manyClaims(ctx context.Context, _ *bench, client *redis.Client) error {
	const claims = 200
	th, err := open(client, "claims", limits{throttle.PerMinute(100)}, limits{throttle.PerSecond(5000)}, nil)
	if err != nil {
		return err
	}
	var jobs []throttle.Job
	for _, weight := range []int64{60, 90, 1, 1, 1} { // the first starts, the second has no room for its weight
		for i := range claims {
			j := job(fmt.Sprintf("claim-%d-%d", weight, len(jobs)), "tenant-"+strconv.Itoa(i))
			j.Weight = weight
			jobs = append(jobs, j)
		}
	}
	for _, answer := range th.ReserveAll(ctx, jobs) {
		if answer.Err != nil {
			return answer.Err
		}
	}
	if err := drive(ctx, th, 2*time.Second); err != nil {
		return err
	}
	// A change of limits makes a pull look at all of them again.
	if err := inspect.New(th).SetLimits(ctx, "tenant", "", limits{throttle.PerMinute(200)}); err != nil {
		return err
	}
	return errors.Join(drive(ctx, th, 2*time.Second), look(ctx, th, "tenant", "tenant-0", time.Minute))
}

// manyTimers makes each of many tenants wait for a limit of its own. Then the limits and the mode of all tenants are
// set, and the clock steps back.
func manyTimers(ctx context.Context, _ *bench, client *redis.Client) error {
	const tenants = 40_000
	th, err := open(client, "timers", limits{throttle.PerMinute(1)}, limits{throttle.PerSecond(50_000)}, nil)
	if err != nil {
		return err
	}
	var jobs []throttle.Job
	for i := range 2 * tenants {
		jobs = append(jobs, job(fmt.Sprintf("timer-%d", i), "tenant-"+strconv.Itoa(i%tenants)))
	}
	for _, answer := range th.ReserveAll(ctx, jobs) {
		if answer.Err != nil {
			return answer.Err
		}
	}
	for _, change := range []func() error{
		func() error { return inspect.New(th).SetLimits(ctx, "tenant", "", limits{throttle.PerHour(1)}) },
		func() error { return inspect.New(th).SetMode(ctx, "", throttle.Enforce) },
		func() error { // the line was pulled by a clock that was ahead
			ahead := time.Now().Add(3 * time.Second).UnixMicro()
			return client.Set(ctx, "thr:{timers}:4:pulled", ahead, time.Minute).Err()
		},
	} {
		if err := errors.Join(change(), drive(ctx, th, 3*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// manyPlaces runs as many jobs at once as a long ledger has entries, and lets many wait for their places.
func manyPlaces(ctx context.Context, _ *bench, client *redis.Client) error {
	const places, rounds = 2000, 20
	th, err := open(client, "places", limits{throttle.Running(places)}, limits{throttle.Running(2 * places)}, nil)
	if err != nil {
		return err
	}
	var running []throttle.Reservation
	ask := func(n int) error {
		r, err := th.Reserve(ctx, job(fmt.Sprintf("place-%d", n), "acme"))
		if r.Outcome == throttle.Granted {
			running = append(running, r)
		}
		return err
	}
	for n := range places {
		if err := errors.Join(ask(n), sleep(ctx, 2*time.Millisecond)); err != nil { // each in a sub-window of its own
			return err
		}
	}
	for n := range places {
		if err := ask(places + n); err != nil {
			return err
		}
	}
	driver := th.Driver()
	for range rounds {
		ended := running[:64]
		running = running[64:]
		pulled, err := driver.Pull(ctx, ended...)
		if err != nil {
			return err
		}
		jobs := make([]throttle.Job, len(pulled.Booked))
		for i, r := range pulled.Booked {
			jobs[i] = job(r.Job.ID, "acme")
		}
		for _, answer := range th.ReserveAll(ctx, jobs) {
			if answer.Err != nil {
				return answer.Err
			}
			running = append(running, answer.Reservation)
		}
		if _, err := th.Renew(ctx, running[len(running)/2:]...); err != nil {
			return err
		}
	}
	_, err = inspect.New(th).Usage(ctx, "tenant", "acme")
	return err
}

// alternatingGaps books two scope keys for a second without a gap. Then it takes back every second booking of each key,
// the even ones of one key and the odd ones of the other: a job that needs both keys finds no place before their end.
func alternatingGaps(ctx context.Context, _ *bench, client *redis.Client) error {
	const bookings = 1000
	one := throttle.Limit{Units: 1, Window: time.Millisecond, Precision: throttle.Exact}
	scopes := []throttle.Scope{{Name: "x", Limits: []throttle.Limit{one}, Optional: true},
		{Name: "y", Limits: []throttle.Limit{one}, Optional: true}}
	th, err := throttle.New("gaps", client, scopes,
		&throttle.Options{Lookahead: 24 * time.Hour, Timeout: time.Minute, Grace: time.Hour})
	if err != nil {
		return err
	}
	var gone []string
	for i, scope := range []string{"x", "y"} {
		if _, err := inspect.New(th).Pause(ctx, scope, "1", time.Now().Add(23*time.Hour)); err != nil {
			return err
		}
		jobs := make([]throttle.Job, bookings)
		for n := range jobs {
			jobs[n] = throttle.Job{ID: fmt.Sprint(scope, n), Weight: 1, Keys: map[string]string{scope: "1"}}
			if n > 0 && n%2 == i {
				gone = append(gone, jobs[n].ID)
			}
		}
		for _, answer := range th.ReserveAll(ctx, jobs) {
			if answer.Err != nil || answer.Reservation.Outcome != throttle.Booked {
				return fmt.Errorf("%s: %w", answer.Reservation.Outcome, errors.Join(answer.Err, errors.New("want booked")))
			}
		}
	}
	if _, err := th.Driver().Leave(ctx, gone); err != nil {
		return err
	}
	both := make([]throttle.Job, 64)
	for i := range both {
		both[i] = throttle.Job{ID: "both" + strconv.Itoa(i), Weight: 1, Keys: map[string]string{"x": "1", "y": "1"}}
	}
	for range 5 {
		if _, err := th.Peek(ctx, both[0]); err != nil {
			return err
		}
	}
	for _, answer := range th.ReserveAll(ctx, both) {
		if answer.Err != nil {
			return answer.Err
		}
	}
	return nil
}
