package throttle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

func codecThrottle(t *testing.T) *Throttle {
	t.Helper()
	return fakeThrottle(t, newFake(), Options{})
}

func TestHeaderText(t *testing.T) {
	t.Parallel()
	th := codecThrottle(t)
	want := [2]string{
		"1000000 5000000 2764801000 9 0 8000",
		"domain=s:;global=e:1000/w1000000/10000;tenant=e:100/w60000000/1,2000/w86400000000/864000000;",
	}
	if th.header != want {
		t.Errorf("header %q, want %q", th.header, want)
	}
}

func TestOrderText(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		job   Job
		lane  string
		costs []int64
	}{
		{"one weight", Job{Weight: 5, Keys: map[string]string{"tenant": "acme"}}, "acme|global:,tenant:acme", []int64{5, 5}},
		{"optional", Job{Weight: 5, Keys: map[string]string{"tenant": "a b", "domain": "x.org"}},
			"a%20b|domain:x.org,global:,tenant:a%20b", []int64{5, 5, 5}},
		{"costs", Job{Weight: 5, Costs: map[string]int64{"tenant": 3, Global: 1},
			Keys: map[string]string{"tenant": "a", "domain": "d"}}, "a|domain:d,global:,tenant:a", []int64{5, 1, 3}},
		{"same costs", Job{Weight: 5, Costs: map[string]int64{"tenant": 3, Global: 3},
			Keys: map[string]string{"tenant": "a"}}, "a|global:,tenant:a", []int64{3, 3}},
		{"a scope that does not concern it",
			Job{Weight: 5, Costs: map[string]int64{Global: 0}, Keys: map[string]string{"tenant": "a"}},
			"a|tenant:a", []int64{5}},
		{"its flow's scope", Job{Weight: 5, Costs: map[string]int64{"tenant": 0},
			Keys: map[string]string{"tenant": "a"}}, "a|global:", []int64{5}},
		{"a lower priority", Job{Weight: 5, Priority: 2, Keys: map[string]string{"tenant": "a b"}},
			"a%20b#2|global:,tenant:a%20b", []int64{5, 5}},
		{"no flow", Job{Weight: 5, Costs: map[string]int64{"tenant": 0}}, "|global:", []int64{5}},
		{"nothing", Job{Weight: 5, Costs: map[string]int64{"tenant": 0, Global: 0}}, "|", []int64{5}},
	}
	th := codecThrottle(t)
	for _, row := range rows {
		row.job.ID = "j"
		o, err := th.order(t.Context(), row.job)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if o.lane != row.lane || !slices.Equal(o.costs(), row.costs) {
			t.Errorf("%s: lane %q, costs %d; want %q, %d", row.name, o.lane, o.costs(), row.lane, row.costs)
		}
		keys, _ := wire.LaneKeys(o.lane, th.fair)
		for scope, key := range keys {
			if row.job.Keys[scope] != key {
				t.Errorf("%s: the lane's keys are %v", row.name, keys)
			}
		}
	}
}

func TestOrderRefuses(t *testing.T) {
	t.Parallel()
	tenant := map[string]string{"tenant": "a"}
	rows := []struct {
		field string
		job   Job
	}{
		{"Weight", Job{Keys: tenant}},
		{"Weight", Job{Weight: maxUnits + 1, Keys: tenant}},
		{"Costs", Job{Weight: 1, Keys: tenant, Costs: map[string]int64{"tenant": -1}}},
		{"Costs", Job{Weight: 1, Keys: tenant, Costs: map[string]int64{"tenant": maxUnits + 1}}},
		{"Costs", Job{Weight: 1, Keys: tenant, Costs: map[string]int64{"planet": 1}}},
		{"Keys", Job{Weight: 1}},
		{"Keys", Job{Weight: 1, Keys: map[string]string{"tenant": ""}}},
		{"Keys", Job{Weight: 1, Keys: map[string]string{"tenant": "a", "planet": "x"}}},
		{"Keys", Job{Weight: 1, Keys: map[string]string{"tenant": "a", Global: "x"}}},
		{"MaxWait", Job{Weight: 1, Keys: tenant, MaxWait: -1}},
		{"Nonce", Job{Weight: 1, Keys: tenant, Nonce: "a b"}},
	}
	th := codecThrottle(t)
	for i, row := range rows {
		row.job.ID = "j"
		_, err := th.order(t.Context(), row.job)
		var invalid *InvalidJobError
		if !errors.As(err, &invalid) || invalid.Field != row.field {
			t.Errorf("row %d: got %v, want %s", i, err, row.field)
		}
	}
}

func TestReserveArguments(t *testing.T) {
	t.Parallel()
	th := codecThrottle(t)
	now := time.UnixMicro(1_000_000)
	th.now = func() time.Time { return now }
	o,
		err := th.order(t.Context(), Job{ID: "j", Weight: 2, Keys: map[string]string{"tenant": "a"},
		MaxWait: time.Second, Plan: true, Deadline: now.Add(3 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	got := texts(th.reserveArguments(7, o))
	want := []string{"1000000", th.header[0], th.header[1], th.asker, "7", "j", "a|global:,tenant:a",
		"2 1 1000000 3000000 1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDecisions reads each kind of answer, and refuses each that lacks its end.
func TestDecisions(t *testing.T) {
	t.Parallel()
	th := codecThrottle(t)
	o, err := th.order(t.Context(), Job{ID: "j", Weight: 2, Keys: map[string]string{"tenant": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	minute, at := PerMinute(100), time.UnixMicro
	base := Reservation{Job: o.job, Now: at(1000), Next: at(5000), Lane: o.lane}
	with := func(change func(r *Reservation)) Reservation {
		r := base
		change(&r)
		return r
	}
	rows := []struct {
		line string
		want any // a Reservation or an error
	}{
		{"1 1000 0 0", with(func(r *Reservation) { r.Outcome, r.Start = Granted, at(1000) })},
		{"1 1000 0 700", with(func(r *Reservation) {
			r.Outcome, r.Start, r.Waited = Granted, at(1000), 700*time.Microsecond
		})},
		{"1 1000 30000000 0", with(func(r *Reservation) { r.Outcome, r.Start, r.Lease = Granted, at(1000), 30*time.Second })},
		{"1 1000 0 0 tenant:a/100/w60000000/1 9000", with(func(r *Reservation) {
			r.Outcome, r.Start, r.Shadow = Granted, at(1000), &Hold{Scope: "tenant", Key: "a", Limit: minute, Until: at(9000)}
		})},
		{"2 2000", with(func(r *Reservation) { r.Outcome, r.Start = Booked, at(2000) })},
		{"2 2000 tenant:a/p 0 0", with(func(r *Reservation) {
			r.Outcome, r.Start, r.Hold = Booked, at(2000), &Hold{Scope: "tenant", Key: "a", Paused: true, Until: at(2000)}
		})},
		{"2 2000 global:/7/w60000000/600000 3 4", with(func(r *Reservation) {
			r.Outcome, r.Start = Booked, at(2000)
			r.Hold = &Hold{Scope: Global, Limit: Limit{Units: 7, Window: time.Minute,
				Precision: 600 * time.Millisecond}, Used: 3, Booked: 4, Until: at(2000)}
		})},
		{"3 2000 - 0 0 4 5", with(func(r *Reservation) {
			r.Outcome, r.Start, r.Ahead, r.AskAgain = Waiting, at(2000), 4, at(1000).Add(4*time.Millisecond+12*time.Second)
		})},
		{"4 2000 tenant:a/100/w60000000/1 3 4",
			&DeadlineError{Job: "j", Start: at(2000),
				Hold: &Hold{Scope: "tenant", Key: "a", Limit: minute, Used: 3, Booked: 4, Until: at(2000)}}},
		{"5 tenant:a/100/w60000000/1 c", &NeverFitsError{Job: "j", Weight: 2, Scope: "tenant", Key: "a", Limit: minute}},
		{"5 tenant:a/100/w60000000/1 s", &BlockedError{Job: "j", Weight: 2, Scope: "tenant", Key: "a", Limit: minute}},
		{"5 tenant:a/100/w60000000/1 k", &BlockedError{Job: "j", Weight: 2, Scope: "tenant", Key: "a", Limit: minute}},
		{"0 FOREIGN key:tenant:a", &StateError{Key: "thr:{t}:4:key:tenant:a"}},
	}
	for _, row := range rows {
		answers, err := th.decisions("1000 5000\n"+row.line, []*order{o})
		if err != nil {
			t.Errorf("%q: %v", row.line, err)
			continue
		}
		var got any = answers[0].Reservation
		if answers[0].Err != nil {
			got = answers[0].Err
		}
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%q: got %+v, want %+v", row.line, got, row.want)
		}
	}
	for _, line := range []string{
		"", "x", "6 1", "1", "1 x", "1 -5", "1 1000", "1 1000 x", "1 1000 0", "1 1000 -1 0",
		"1 1000 0 -1", "1 1000 0 0 tenant:a/100/w60000000/1", "1 1000 0 0 nobody:/1/1/1 5",
		"2 2000 tenant:a/100/60000000 3 4",
		"2 2000 tenant:a/100/w60000000/1 3", "2 2000 tenant:a/100/w60000000/1 3 4 5",
		"2 2000 tenant:a/-2/w60000000/1 3 4", "2 2000 tenant:a/1/w0/1 3 4",
		"3 2000", "3 2000 - 0 0 4", "3 2000 - 0 0 -4 5", "4", "5", "5 - c", "5 tenant:a/p c",
		"5 tenant:a/100/w60000000/1", "5 tenant:a/100/w60000000/1 x", "0 WRONGTYPE Operation",
	} {
		answers, err := th.decisions("1000 5000\n"+line, []*order{o})
		if err == nil {
			err = answers[0].Err
		}
		if !errors.Is(err, ErrState) {
			t.Errorf("%q: got %v, want ErrState", line, err)
		}
	}
	for _, reply := range []any{nil, int64(1), "", "1000", "1000 0", "1000 0\n1 1000 0 0\n1 1000 0 0", "x y\n1 1000 0 0",
		[]any{"1000 0\n1 1000 0 0"}} {
		if _, err := th.decisions(reply, []*order{o}); !errors.Is(err, ErrState) {
			t.Errorf("%v: got %v, want ErrState", reply, err)
		}
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	th := codecThrottle(t)
	o, err := th.order(t.Context(), Job{ID: "j", Weight: 2, Keys: map[string]string{"tenant": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		line        string
		start, late time.Duration
	}{
		// 50 jobs of 2 units are a window of the flow's own limit, whoever else stands there.
		{"3 2000000 tenant:a/100/w60000000/1 100 0 49 9", time.Minute, 4*time.Minute + 12*time.Second},
		// Of a limit that others share it has one part in four.
		{"3 2000000 global:/1000/w1000000/10000 100 0 499 4", 4 * time.Second, 28 * time.Second},
		{"3 9000000 global:/1000/w1000000/10000 100 0 0 4", 8 * time.Second, 44 * time.Second},
		// Others cannot make a pause longer, but after it 1,000 flows with 11 jobs of 2 units each take 22 s of a limit that
		// lets through those of the first second at once.
		{"3 61000000 tenant:a/p 0 0 10 1", time.Minute, time.Minute + 12*time.Second},
		{"3 61000000 global:/p 0 0 10 1000", 81 * time.Second, 156 * time.Second},
		{"3 9007199254740992 tenant:a/0/w60000000/1 0 0 10 1", time.Hour, time.Hour + 12*time.Second},
		{"3 2000000 tenant:a/1/w34560000000000/1 1 0 9999999 1", maxWindow, latestAsking + 12*time.Second},
	}
	for _, row := range rows {
		answers, err := th.decisions("1000000 1000001\n"+row.line, []*order{o})
		if err != nil || answers[0].Err != nil {
			t.Errorf("%q: %v, %v", row.line, err, answers)
			continue
		}
		r := answers[0].Reservation
		if r.Start.Sub(r.Now) != row.start || r.AskAgain.Sub(r.Now) != row.late || !r.Hold.Until.Equal(r.Start) {
			t.Errorf("%q: start after %s, late after %s; want %s, %s", row.line, r.Start.Sub(r.Now),
				r.AskAgain.Sub(r.Now), row.start, row.late)
		}
	}
}

func TestPulled(t *testing.T) {
	t.Parallel()
	th := codecThrottle(t)
	p,
		err := th.pulled(t.Context(), []any{"1000", "2000", "1", "", "0", int64(1), int64(0), "a", "3000",
		"acme|global:,tenant:acme", "b", "500", "|global:"}, 2)
	if err != nil || len(p.Booked) != 1 || len(p.Overdue) != 1 || !slices.Equal(p.Held, []bool{true, false}) ||
		!p.Next.Equal(time.UnixMicro(2000)) {
		t.Fatalf("got %+v, %v", p, err)
	}
	want := Reservation{Job: Job{ID: "a", Keys: map[string]string{"tenant": "acme"}}, Outcome: Booked,
		Now: time.UnixMicro(1000), Start: time.UnixMicro(3000), Lane: "acme|global:,tenant:acme"}
	if !reflect.DeepEqual(p.Booked[0], want) {
		t.Errorf("got %+v, want %+v", p.Booked[0], want)
	}
	long := strings.Repeat("x", 200)
	if keys, is := wire.LaneKeys(wire.Encode(long)+"|tenant:"+wire.Encode(long), th.fair); !is ||
		!strings.HasPrefix(keys["tenant"], "~") {
		t.Errorf("keys %v", keys)
	}
	for _, reply := range []any{nil, "x", []any{}, []any{"1", "2"}, []any{"1", "2", "1", "", "0"},
		[]any{"1", "2", "0", ""}, []any{"1", "2", "0", "", "0", "a"}, []any{"1", "2", "1", "", "0", "a", "x", "|"},
		[]any{"1", "2", "1", "", "0", "a", "1", "no lane"}, []any{"1", nil, "0", "", "0"}} {
		if _, err := th.pulled(t.Context(), reply, 0); !errors.Is(err, ErrState) {
			t.Errorf("%v: got %v, want ErrState", reply, err)
		}
	}
}

func TestSettleText(t *testing.T) {
	t.Parallel()
	client := newFake()
	th := fakeThrottle(t, client, Options{})
	job := Job{ID: "j", Weight: 5, Costs: map[string]int64{"tenant": 3}, Keys: map[string]string{"tenant": "a"},
		MaxWait: time.Second}
	granted := Reservation{Job: job, Outcome: Granted, Start: time.UnixMicro(1000), Now: time.UnixMicro(900)}
	waited := granted
	waited.Waited = time.Microsecond
	rows := []struct {
		settle func() (bool, error)
		want   string
	}{
		{func() (bool, error) { return th.Settle(t.Context(), granted, 4) }, "5,3 4,3 1000 900 3600000000 1 0 0"},
		{func() (bool, error) { return th.Settle(t.Context(), waited, 4) }, "5,3 4,3 1000 900 3600000000 1 0 1"},
		{func() (bool, error) { return th.SettleCosts(t.Context(), granted, map[string]int64{"tenant": 1}) },
			"5,3 5,1 1000 900 3600000000 1 0 0"},
		{func() (bool, error) { return th.Refund(t.Context(), granted) }, "5,3 0 1000 900 3600000000 1 0 0"},
		{func() (bool, error) { return th.Driver().Release(t.Context(), granted) }, "5,3 0 1000 900 3600000000 1 1 0"},
	}
	for i, row := range rows {
		if done, err := row.settle(); err != nil || !done {
			t.Fatalf("row %d: %t, %v", i, done, err)
		}
		args := client.calls[i].args
		if got := fmt.Sprint(strings.Join(args[5:], " ")); args[3] != "j" || args[4] != "a|global:,tenant:a" ||
			got != row.want {
			t.Errorf("row %d: got %q of %q, want %q", i, got, args[4], row.want)
		}
	}
}
