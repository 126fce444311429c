package wire_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

var minute = line.Limit{Units: 100, Span: line.Window(60_000_000), Precision: 1}

// TestRequestsAreReadAsWritten: the arguments of a script are read as they were written. A reader refuses the
// arguments if one text is missing or one is added.
func TestRequestsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	ended := []wire.Ended{{ID: "a", Start: 5, Cooldowns: map[string]int64{}},
		{ID: "b c", Start: 7, Cooldowns: map[string]int64{"domain": 3, "tenant": 9}}}
	for _, asked := range []interface{ Arguments() []string }{
		wire.Reserve{Asker: "me", Asking: 7, Jobs: []line.Job{
			{ID: "j", Lane: "a|global:,tenant:a", Costs: []int64{2, 2}, MaxWait: 9, Latest: -1, Plan: true, Share: 3},
			{ID: "k 1", Lane: "|", Costs: []int64{5}, Latest: line.Never, Share: 1},
			{ID: "l", Lane: "a#2|global:,tenant:a", Costs: []int64{1, 0}, Latest: 4, Share: 1}}},
		wire.Reserve{Asker: "me"},
		wire.Pull{Bookings: 50, Looks: 200, Delivers: true, Ended: ended},
		wire.Pull{Timed: true},
		wire.Running{Renews: true, Timed: true, Grants: ended},
		wire.Running{Grants: ended[:1]},
		wire.Settle{Grant: line.Grant{ID: "j", Lane: "a|global:,tenant:a", Costs: []int64{3, 4}, Start: 10, Decided: 9,
			Waited: true}, Actual: []int64{0, 0}, Within: 100, Share: 2, Rebook: true},
		wire.Set{What: wire.SetLimits, Name: "tenant:a", Value: minute.String(), Lasts: 5, Note: "ann|why"},
		wire.Report{Name: "tenant:a", Report: line.Report{Refused: true, Started: 1, Wait: 2, Floor: 3, Margin: 8,
			Limits: []line.ReportedLimit{{Window: 4, Units: 5, Remaining: -1}, {Window: 0, Units: 6, Remaining: 7}}}},
		wire.Report{Name: "global:"},
		wire.Usage{Entries: true, Names: []string{"global:", "tenant:a"}},
		wire.Usage{Count: true, From: 9, To: 3, Names: []string{"global:"}},
		wire.Lines{Kind: wire.LinesQueues, Of: []string{"global:", "tenant:a!"}, From: -500, Count: 500},
		wire.Lines{Kind: wire.LinesKeys, Of: []string{}, Count: 500},
	} {
		args := asked.Arguments()
		got, err := read(asked, args)
		if diff := cmp.Diff(asked, got); err != nil || diff != "" {
			t.Errorf("%T is read with %v, (-written +read):\n%s", asked, err, diff)
		}
		if got, err := read(asked, args[:len(args)-1]); !errors.Is(err, wire.ErrUnreadable) && !isShorter(asked) {
			t.Errorf("%q is read as %+v", args[:len(args)-1], got)
		}
	}
}

// isShorter reports whether arguments are well formed without their last text, because they end with a list of names or
// with optional texts.
func isShorter(asked any) bool {
	l, isLines := asked.(wire.Lines)
	_, isUsage := asked.(wire.Usage)
	_, isSmall := asked.(wire.Reserve)
	return isUsage || isLines && len(l.Of) > 0 || isSmall && len(asked.(wire.Reserve).Jobs) == 0
}

func read(asked any, args []string) (any, error) {
	switch asked.(type) {
	case wire.Reserve:
		return wire.ReadReserve(args)
	case wire.Pull:
		return wire.ReadPull(args)
	case wire.Running:
		return wire.ReadRunning(args)
	case wire.Settle:
		return wire.ReadSettle(args)
	case wire.Set:
		return wire.ReadSet(args)
	case wire.Report:
		return wire.ReadReport(args)
	case wire.Usage:
		return wire.ReadUsage(args)
	}
	return wire.ReadLines(args)
}

func TestHeaderIsReadAsWritten(t *testing.T) {
	t.Parallel()
	h := wire.Header{Settings: line.Settings{Lookahead: 1, Grace: 2, Lower: 9, Counts: true, Scopes: map[string]line.Scope{
		"tenant": {Mode: line.Enforce, Limits: []line.Limit{{Units: 3, Span: line.Lease(9), Precision: 1}, minute}},
		"domain": {Mode: line.Off}}}, Kept: 3, Steps: 4}
	texts := h.Texts()
	if got, err := wire.ReadHeader(texts[0], texts[1]); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%q is read as %+v, %v", texts, got, err)
	}
	for _, wrong := range [][2]string{{"1 2 3 9 1", texts[1]}, {texts[0], "tenant"}, {texts[0], "tenant=e"},
		{texts[0], "tenant=es:;"}, {texts[0], "tenant=e:5;"}} {
		if got, err := wire.ReadHeader(wrong[0], wrong[1]); err == nil {
			t.Errorf("%q is read as %+v", wrong, got)
		}
	}
}

// TestAnswersAreReadAsWritten: the replies of the model are read in the same way as those of the scripts.
func TestAnswersAreReadAsWritten(t *testing.T) {
	t.Parallel()
	stamp := wire.Stamp{Now: 1000, Next: 5}
	held := &line.Held{Key: "tenant:a", Limit: &minute, Used: 3, Booked: 4}
	shadow := &line.Held{Key: "tenant:a", Limit: &minute}
	heavy := &line.Held{Key: "tenant:a", Limit: &minute, Origin: 'k'}
	paused := &line.Held{Key: "global:"}
	decisions := wire.Decisions{Stamp: stamp}
	for _, a := range []line.Answer{
		{Outcome: line.Granted, Start: 7},
		{Outcome: line.Granted, Start: 7, Lease: 9, Waited: 3, Uncharged: []string{"a:", "b:"}},
		{Outcome: line.Granted, Start: 7, Shadow: shadow, Until: 8}, {Outcome: line.Booked, Start: 7},
		{Outcome: line.Booked, Start: 7, Held: held}, {Outcome: line.Waiting, Start: 7, Ahead: 1, Flows: 2},
		{Outcome: line.Waiting, Start: 7, Held: paused, Ahead: 1, Flows: 2}, {Outcome: line.TooLate, Start: 7, Held: held},
		{Outcome: line.NeverFits, Held: heavy},
		{Outcome: line.LineFull, Start: 7, Held: held, Ahead: 1, Flows: 2,
			Full: &line.Full{Key: "tenant:a", Length: line.Length{Jobs: 8, Units: 9}}},
	} {
		decisions.Answers = append(decisions.Answers, wire.Decision{Answer: a})
	}
	if got, err := wire.ReadDecisions(decisions.String()); err != nil || !reflect.DeepEqual(got, decisions) {
		t.Errorf("%q is read as %+v, %v", decisions, got, err)
	}
	pulled := wire.Pulled{Stamp: stamp, Trouble: "FOREIGN key:a", EndedAt: 3, Held: []bool{true, false},
		Booked: []line.Told{{ID: "a", Slot: 5, Lane: "x|"}}, Overdue: []line.Told{{ID: "b", Slot: 6, Lane: "y|"}}}
	if got, err := wire.ReadPulled(pulled.Reply(), 2); err != nil || !reflect.DeepEqual(got, pulled) {
		t.Errorf("read as %+v, %v", got, err)
	}
	done := wire.Done{Stamp: stamp, Done: []bool{true, false}}
	if got, err := wire.ReadDone(done.Reply(), 2); err != nil || !reflect.DeepEqual(got, done) {
		t.Errorf("read as %+v, %v", got, err)
	}
	set := wire.WasSet{Stamp: stamp, Before: "", InForce: "s|9|8|ann|"}
	if got, err := wire.ReadWasSet(set.Reply()); err != nil || got != set {
		t.Errorf("read as %+v, %v", got, err)
	}
	reported := wire.Reported{Stamp: stamp, Before: 1000, Served: 700, Paused: 9}
	if got, err := wire.ReadReported(reported.Reply()); err != nil || got != reported {
		t.Errorf("read as %+v, %v", got, err)
	}
	used := wire.Used{Now: 1000, Keys: []wire.KeyUsed{
		{KeyState: line.KeyState{Part: 1000, Mode: line.Enforce, Origin: 'c', Length: line.Length{Jobs: 3, Units: 4}}},
		{KeyState: line.KeyState{Paused: 5, Part: 700, Mode: line.Shadow, Origin: 'k', Ends: 6, Flows: 7, Timer: 8,
			Limits: []line.Usage{{Limit: minute, Used: 1, Booked: 2, Free: 3}}}, Counted: []int64{-1},
			Ledgers: []line.LedgerSnapshot{{Span: minute.Span, Precision: 1, N: 2, Shift: -3,
				Spent: []line.Entry{{At: 4, Units: 5}}}}}}}
	if got, err := wire.ReadUsed(used.Reply()); err != nil || !reflect.DeepEqual(got, used) {
		t.Errorf("read as %+v, %v", got, err)
	}
}

func TestPageIsReadAsWritten(t *testing.T) {
	t.Parallel()
	queue := line.QueueSnapshot{Name: "tenant:a", Virtual: 0.1, Flows: []line.FlowSnapshot{
		{Flow: "a", Tag: 1.0 / 3, Lanes: []line.Standing{{Lane: "a|tenant:a", Arrival: 5}}}},
		Finish: map[string]float64{"b": 2}, HadTurn: []string{"c"},
		Classes: map[string]line.ClassTags{"a": {Virtual: 1, Tags: [line.Priorities]float64{0, 2}}}}
	claim := line.ClaimSnapshot{Key: "global:", At: 9, ID: "j"}
	job := line.JobState{Slot: 1, Arrival: 2, Before: -1, Jobs: 3, Queue: "tenant:a", Timer: 4}
	waiters := []line.Waiter{{ID: "j", Arrival: 6, Costs: []int64{1}}}
	w := wire.NewPage(1000)
	w.Queue(queue)
	w.Claim(claim)
	w.Job(job)
	w.Waiters(waiters, true)
	w.Standings(queue, func(string) []line.Waiter { return []line.Waiter{{Costs: []int64{4}}, {}} })
	w.Standings(line.QueueSnapshot{}, nil)
	p := wire.ReadPage(w.Reply())
	if q := p.Queue(); q.Name != queue.Name || q.Standing != 1 || q.Virtual != queue.Virtual {
		t.Errorf("a queue is read as %+v", q)
	}
	if c := p.Claim(); c != claim {
		t.Errorf("a claim is read as %+v", c)
	}
	if j := p.Job(); j != job {
		t.Errorf("a job is read as %+v", j)
	}
	if n, j := p.Natural(), p.Waiter("a|tenant:a"); n != 1 || !reflect.DeepEqual(j, waiters[0]) {
		t.Errorf("%d waiters, the first is read as %+v", n, j)
	}
	if flows, flow, tag, lanes := p.Natural(), p.Text(), p.Float(), p.Natural(); flows != 1 || flow != "a" ||
		tag != 1.0/3 || lanes != 1 {
		t.Errorf("%d flows, the first is read as %s, %g, %d lanes", flows, flow, tag, lanes)
	}
	if l := p.Standing(); l.Standing != queue.Flows[0].Lanes[0] || l.Jobs != 2 ||
		!slices.Equal(l.Costs, []int64{4}) {
		t.Errorf("a lane is read as %+v", l)
	}
	tags := line.QueueSnapshot{Name: queue.Name, Flows: queue.Flows}
	if p.Tags(&tags); !reflect.DeepEqual(tags, queue) {
		t.Errorf("the tags are read as %+v", tags)
	}
	if flows, tags := p.Natural(), p.Natural(); flows+tags != 0 || p.Err() != nil || p.Now != 1000 || p.Next != "" {
		t.Errorf("the empty queue has %d flows and %d tags: %v", flows, tags, p.Err())
	}
}

// FuzzReadDecisions: no reply makes the reader panic, and a reply that was read is read the same once it is written.
func FuzzReadDecisions(f *testing.F) {
	for _, text := range []string{"1000 5\n1 7 0 0", "1 0\n2 7 a:/3/w5/1 1 2\n3 7 - 0 0 1 2", "1 0\n5 a:/3/r5/1 c",
		"1 0\n", "1 0\n1 7 9 4 !a:,b: a:/p 8", "1 0\n0 FOREIGN key:a", "1 0\n5 a:/3/z86400000000day@UTC/1 c", "0 0\n5 //z10/",
		"1 0\n2 7 a:/-1/h604800000000Mon-Fri~09:00-17:00~@Europe.Paris/1 0 0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := wire.ReadDecisions(text)
		if err != nil {
			return
		}
		for _, answer := range d.Answers {
			if answer.Err != nil {
				return
			}
		}
		again, err := wire.ReadDecisions(d.String())
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("%q is read as %+v, and that as %+v, %v", text, d, again, err)
		}
	})
}

// FuzzReadUsed: no reply makes the reader panic, and a reply that was read is read the same once it is written.
func FuzzReadUsed(f *testing.F) {
	f.Add("5 700 s k 6 7 8\n100/w60000000/1 1 2 3 4\n# -1\n= w60000000 1 2 -3 00000000000000040000000000000005 -")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := wire.ReadUsed([]any{"1000", text})
		if err != nil {
			return
		}
		again, err := wire.ReadUsed(u.Reply())
		if err != nil || !reflect.DeepEqual(again, u) {
			t.Fatalf("%q is read as %+v, and that as %+v, %v", text, u, again, err)
		}
	})
}
