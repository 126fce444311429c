package line_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// crowded is a line with flows, lanes, heavy jobs, bookings, pauses and costs of many
// kinds, and when it is.
func crowded(seed uint64) (l *line.Line, settings line.Settings, now int64) {
	random := rand.New(rand.NewPCG(seed, 1))
	settings = settingsOf(map[string][]line.Limit{
		"global": {per(10, 10*second), per(101, 60*second)}, "tenant": {per(4, 10*second)}, "domain": {per(3, 5*second)},
	})
	l, now = line.New(), 1_800_000_000*second
	jobs := make(map[string]line.Job)
	for i := range 60 {
		flow := fmt.Sprint("t", random.IntN(4))
		lane, costs := flow+"|global:,tenant:"+flow, []int64{1 + random.Int64N(3), 1 + random.Int64N(4)}
		if random.IntN(2) == 0 {
			lane, costs = flow+"|domain:x,global:,tenant:"+flow, append([]int64{1 + random.Int64N(3)}, costs...)
		}
		job := line.Job{ID: fmt.Sprint("j", i), Lane: lane, Costs: costs, MaxWait: 2 * second, Latest: line.Never,
			Share: 1 + random.Int64N(2)}
		jobs[job.ID] = job
		l.Reserve(now, settings, []line.Job{job})
		now += random.Int64N(second / 2)
		if i%4 == 0 {
			for _, told := range l.Pull(now, settings, 50, 200).Booked {
				l.Reserve(now, settings, []line.Job{jobs[told.ID]}) // it starts within MaxWait
			}
		}
		if i == 20 {
			l.Pause(now, settings, "tenant:t1", now+40*second)
		}
		if i == 40 && seed%2 == 0 {
			l.SetLimits(now, settings, "tenant:t0", []line.Limit{per(0, 10*second)}, now+50*second)
			l.SetLimits(now, settings, "tenant", []line.Limit{per(5, 20*second)}, now+60*second)
			l.SetMode(now, settings, "domain", line.Off, now+45*second)
			l.SetMode(now, settings, "", line.Shadow, now+2*second)
		}
	}
	return l, settings, now
}

// TestCloneIsApart: what happens to a clone does not happen to its line, and it does what
// the line would.
func TestCloneIsApart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		l, settings, now := crowded(seed)
		first, second, before := l.Clone(), l.Clone(), l.Clone()
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("seed %d: two clones differ", seed)
		}
		play := func(l *line.Line) (told []any) {
			for i := range 40 {
				told = append(told, l.Pull(now+int64(i)*2_000_000, settings, 50, 200))
			}
			return told
		}
		if want := play(first); !reflect.DeepEqual(want, play(second)) {
			t.Fatalf("seed %d: two clones do not do the same", seed)
		}
		if !reflect.DeepEqual(before, l.Clone()) {
			t.Fatalf("seed %d: the line has changed with its clones", seed)
		}
	}
}

// TestEqual: a line equals its clone until anything happens to one of them, and lines that
// came to the same by other ways have clones that are the same to the last byte.
func TestEqual(t *testing.T) {
	t.Parallel()
	const lane = "t0|global:,tenant:t0"
	changes := map[string]func(l *line.Line, now int64, settings line.Settings){
		"a job comes": func(l *line.Line, now int64, settings line.Settings) {
			l.Reserve(now, settings, []line.Job{{ID: "new", Lane: lane, Costs: []int64{1, 1}, Latest: line.Never, Share: 1}})
		},
		"a flow's share": func(l *line.Line, now int64, settings line.Settings) {
			l.Reserve(now, settings,
				[]line.Job{{ID: "new", Lane: "t9|global:,tenant:t9", Costs: []int64{1, 1}, Latest: line.Never, Share: 7}})
			l.Leave(now, settings, []string{"new"})
		},
		"all leave": func(l *line.Line, now int64, settings line.Settings) {
			for i := range 60 {
				l.Leave(now, settings, []string{fmt.Sprint("j", i)})
			}
		},
		"a pull": func(l *line.Line, now int64, settings line.Settings) { l.Pull(now+20*second, settings, 50, 200) },
		"a mark": func(l *line.Line, now int64, settings line.Settings) {
			l.Settle(now, settings, line.Grant{ID: "x", Lane: lane, Costs: []int64{1, 1}, Start: now - 1,
				Decided: now - 1}, []int64{1, 1}, second, false)
		},
		"a pause": func(l *line.Line, now int64, settings line.Settings) { l.Pause(now, settings, "tenant:t9", now+1) },
		"a key's limits": func(l *line.Line, now int64, settings line.Settings) {
			l.SetLimits(now, settings, "tenant:t9", []line.Limit{per(7, second)}, line.Never)
		},
		"a key's no limits": func(l *line.Line, now int64, settings line.Settings) {
			l.SetLimits(now, settings, "tenant:t9", []line.Limit{}, line.Never)
		},
		"a scope's limits": func(l *line.Line, now int64, settings line.Settings) {
			l.SetLimits(now, settings, "other", []line.Limit{per(7, second)}, line.Never)
		},
		"a scope's mode": func(l *line.Line, now int64, settings line.Settings) {
			l.SetMode(now, settings, "other", line.Shadow, line.Never)
		},
		"all modes": func(l *line.Line, now int64, settings line.Settings) {
			l.SetMode(now, settings, "", line.Enforce, line.Never)
		},
	}
	// Some of the line's timers are due at once after what is set: these keys have none.
	ways := map[string]func(l *line.Line, now int64, settings line.Settings){
		"limits set and taken back": func(l *line.Line, now int64, settings line.Settings) {
			l.SetLimits(now, settings, "tenant:t9", []line.Limit{per(7, second)}, line.Never)
			l.SetLimits(now, settings, "other", []line.Limit{per(7, second)}, line.Never)
			l.SetLimits(now, settings, "tenant:t9", nil, line.Never)
			l.SetLimits(now, settings, "other", nil, line.Never)
		},
		"a pause that is ended": func(l *line.Line, now int64, settings line.Settings) {
			l.Pause(now, settings, "tenant:t9", now+second)
			l.Pause(now, settings, "tenant:t9", 0)
		},
		"a snapshot": func(l *line.Line, now int64, settings line.Settings) { l.Snapshot(now, settings) },
	}
	for seed := range uint64(10) {
		l, settings, now := crowded(seed)
		// What is looked at is ready: no limit of "other" has a timer, and what has left is forgotten.
		settings.Scopes["other"] = line.Scope{Mode: line.Enforce, Limits: []line.Limit{per(1, second)}}
		l.Snapshot(now, settings)
		l.SetLimits(now, settings, "other", nil, line.Never)
		for what, change := range changes {
			one, other := l.Clone(), l.Clone()
			if !one.Equal(other) || !one.Equal(l) || !l.Equal(one) {
				t.Fatalf("seed %d: a line does not equal its clones", seed)
			}
			change(one, now, settings)
			if one.Equal(other) || other.Equal(one) || reflect.DeepEqual(one.Clone(), other) {
				t.Errorf("seed %d: after %s the line equals the one before", seed, what)
			}
			change(other, now, settings)
			if !one.Equal(other) || !other.Equal(one) || !reflect.DeepEqual(one.Clone(), other.Clone()) {
				t.Errorf("seed %d: after %s in both they are not equal", seed, what)
			}
		}
		for what, way := range ways {
			one := l.Clone()
			way(one, now, settings)
			if !one.Equal(l) || !l.Equal(one) || !reflect.DeepEqual(one.Clone(), l.Clone()) {
				t.Errorf("seed %d: after %s the line is not as before", seed, what)
			}
		}
	}
}

// TestLoadGoesOn: a line that is loaded from a snapshot starts its jobs when the line does
// whose snapshot it is.
func TestLoadGoesOn(t *testing.T) {
	t.Parallel()
	waited := 0
	for seed := range uint64(20) {
		l, settings, now := crowded(seed)
		var ids []string
		for i := range 60 {
			if id := fmt.Sprint("j", i); l.Waits(id) {
				ids = append(ids, id)
			}
		}
		waited += len(ids)
		loaded := line.Load(l.Snapshot(now, settings))
		want, got := l.Play(t.Context(), now, settings, ids), loaded.Play(t.Context(), now, settings, ids)
		if len(got) != len(ids) || len(want) != len(ids) {
			t.Fatalf("seed %d: %d of %d jobs start, those of the line are %d", seed, len(got), len(ids), len(want))
		}
		off := 0
		for id := range want {
			if got[id] != want[id] {
				off++
			}
		}
		if off > 0 {
			t.Errorf("seed %d: %d of %d jobs start at other times", seed, off, len(ids))
		}
	}
	if waited < 400 {
		t.Errorf("only %d jobs wait: this test has tested nothing", waited)
	}
}
