package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// arriveHeavy makes jobs arrive that cost up to half of a thousand units. Fewer of them stand than one call of the
// scripts hurries, because package line hurries all of them.
func (m *machine) arriveHeavy(t *rapid.T) {
	var jobs []line.Job
	for range min(60-len(m.ids), rapid.SampledFrom([]int{1, 5, 20}).Draw(t, "batch")) {
		j := m.drawJob(t)
		cost := rapid.SampledFrom([]int64{1, 1, 7, 99, 500}).Draw(t, "cost")
		for i := range j.Costs {
			j.Costs[i] = cost
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		t.Skip("enough jobs stand")
	}
	m.ask(t, jobs)
}

func (m *machine) drawJob(t *rapid.T) line.Job {
	flow := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "flow")
	keys := []string{"global:", "tenant:" + flow}
	if rapid.Bool().Draw(t, "domain") {
		keys = append([]string{"domain:" + rapid.SampledFrom([]string{"x", "y"}).Draw(t, "which")}, keys...)
	}
	m.drawn++
	class := flow + rapid.SampledFrom([]string{"", "", "#1", "#3"}).Draw(t, "priority")
	j := line.Job{ID: fmt.Sprintf("j%d", m.drawn), Lane: class + "|" + strings.Join(keys, ","), Latest: line.Never,
		Share: map[string]int64{"a": 1, "b": 1, "c": 3}[flow]}
	for range keys {
		j.Costs = append(j.Costs, rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 5, 9, 99, 690, 4900}).Draw(t, "cost"))
	}
	j.MaxWait = rapid.SampledFrom([]int64{0, 1_200_000, 200_000}).Draw(t, "max wait")
	j.Advance = rapid.SampledFrom([]int64{0, 0, 1, 7, 1000}).Draw(t, "advance")
	if rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "has deadline") {
		j.Latest = rapid.SampledFrom([]int64{-1, 0, second, 100 * second}).Draw(t, "latest")
	}
	j.Plan = rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "plan")
	if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "bounded") {
		for range keys {
			j.Bounds = append(j.Bounds, line.Length{Jobs: rapid.SampledFrom([]int64{0, 0, 1, 3, 9}).Draw(t, "most jobs"),
				Units: rapid.SampledFrom([]int64{0, 0, 1, 9, 200}).Draw(t, "most units")})
		}
	}
	return j
}

func (m *machine) arrive(t *rapid.T) {
	var jobs []line.Job
	for range rapid.SampledFrom([]int{1, 1, 2, 5, 20}).Draw(t, "batch") {
		jobs = append(jobs, m.drawJob(t))
	}
	m.ask(t, jobs)
}

// arriveUsual makes jobs arrive that cost the same under all their scope keys, and that start as soon as they can.
func (m *machine) arriveUsual(t *rapid.T) {
	var jobs []line.Job
	for range rapid.SampledFrom([]int{1, 5, 20}).Draw(t, "batch") {
		j := m.drawJob(t)
		j.Latest, j.Plan = line.Never, false
		for i := range j.Costs {
			j.Costs[i] = j.Costs[0]
		}
		jobs = append(jobs, j)
	}
	m.ask(t, jobs)
}

func (m *machine) ask(t *rapid.T, jobs []line.Job) {
	next, got, err := m.s.reserve(m.now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 1 || len(got) > len(jobs) {
		t.Fatalf("%d answers for %d jobs", len(got), len(jobs))
	}
	jobs, rest := jobs[:len(got)], jobs[len(got):] // the call has taken its steps
	for i := range jobs {
		jobs[i].Advance = advanceIn(t, got[i], jobs[i].Advance)
	}
	want := m.l.Reserve(m.now, m.s.settings, jobs)
	texts := make([]string, len(want))
	for i, a := range want {
		texts[i] = wire.AnswerText(a)
		id := jobs[i].ID
		if a.Outcome == line.Granted {
			m.grants = append(m.grants, line.Grant{ID: id, Lane: jobs[i].Lane, Costs: jobs[i].Costs, Start: a.Start,
				Decided: m.now, Waited: a.Waited > 0})
		}
		if a.Outcome == line.Granted || a.Outcome >= line.TooLate {
			delete(m.jobs, id)
			delete(m.slots, id)
			m.ids = slices.DeleteFunc(m.ids, func(x string) bool { return x == id })
			continue
		}
		if _, known := m.jobs[id]; !known {
			m.ids = append(m.ids, id)
		}
		m.jobs[id] = jobs[i]
		if a.Outcome == line.Booked {
			m.slots[id] = a.Start
		}
	}
	if diff := cmp.Diff(m.known(texts), m.known(got)); diff != "" {
		t.Fatalf("reserve (-line +script):\n%s", diff)
	}
	if want := m.l.Next(); next != want {
		t.Fatalf("next %d, want %d", next, want)
	}
	if len(rest) > 0 {
		m.ask(t, rest)
	}
}

// advanceIn returns the advance of an answer, and fails the test if it is more than the job asked for. The script may
// give less than the model allows, or none: it gives one only in its usual case.
func advanceIn(t *rapid.T, answer string, asked int64) int64 {
	read, err := wire.ReadDecisions("1 0\n" + answer)
	if err != nil || read.Answers[0].Advance > asked {
		t.Fatalf("an advance of %d was asked for: %q, %v", asked, answer, err)
	}
	return read.Answers[0].Advance
}

// rollOut lets the next calls come from a process that bounds lines, if those before came from one that does not, and
// the other way round.
func (m *machine) rollOut(*rapid.T) { m.s.settings.Counts = !m.s.settings.Counts }

// compareLengths compares the length of each line that the scripts have with the number of its jobs in package line.
func (m *machine) compareLengths(t *rapid.T) {
	stored, err := m.s.client.HGetAll(context.Background(), m.s.prefix+"waiting").Result()
	if err != nil {
		t.Fatal(err)
	}
	delete(stored, "*")
	want := make(map[string]string)
	for _, name := range []string{"global:", "tenant:a", "tenant:b", "tenant:c", "domain:x", "domain:y"} {
		if length := m.l.Length(name); length.Jobs > 0 {
			want[name] = fmt.Sprintf("%d %d", length.Jobs, length.Units)
		}
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Fatalf("lengths (-line +script):\n%s", diff)
	}
}

func (m *machine) comeBack(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job waits")
	}
	m.ask(t, []line.Job{m.jobs[rapid.SampledFrom(m.ids).Draw(t, "who")]})
}

// move makes a job ask again with new keys, costs or bounds.
func (m *machine) move(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job waits")
	}
	moved := m.drawJob(t)
	moved.ID = rapid.SampledFrom(m.ids).Draw(t, "who")
	m.ask(t, []line.Job{moved})
}

func (m *machine) onTime(t *rapid.T) {
	var first string
	for _, id := range m.ids {
		if slot, booked := m.slots[id]; booked && slot >= m.now && (first == "" || slot < m.slots[first]) {
			first = id
		}
	}
	if first == "" {
		t.Skip("no job waits")
	}
	// The clock does not step back here: a script that only looks does not note which entries have left, but package
	// line does.
	m.now = max(m.now, m.slots[first]+rapid.SampledFrom([]int64{0, 0, -100_000, 50_000}).Draw(t, "late"))
	due := []line.Job{m.jobs[first]}
	if rapid.Bool().Draw(t, "with all that are due") {
		for _, id := range m.ids {
			if slot, booked := m.slots[id]; booked && slot <= m.now+50_000 && id != first && len(due) < 60 {
				due = append(due, m.jobs[id])
			}
		}
	}
	m.ask(t, due)
}

func (m *machine) leave(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job waits")
	}
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom(m.ids), 1, 3, rapid.ID[string]).Draw(t, "who")
	want := m.l.Leave(m.now, m.s.settings, ids)
	got, err := m.s.leave(m.now, ids)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(m.l.Next())}
	for _, left := range want {
		texts = append(texts, map[bool]string{true: "1", false: "0"}[left])
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("leave (-line +script):\n%s", diff)
	}
	for _, id := range ids {
		delete(m.jobs, id)
		delete(m.slots, id)
		m.ids = slices.DeleteFunc(m.ids, func(x string) bool { return x == id })
	}
}

// known returns answers without the estimates of starts that lie beyond the edges that Redis has: there the script
// assumes that hours are open, and package line knows them.
func (m *machine) known(answers []string) []string {
	known := slices.Clone(answers)
	for i, answer := range answers {
		read, err := wire.ReadDecisions("1 0\n" + answer)
		if err != nil || read.Answers[0].Start <= m.now+histories {
			continue
		}
		switch outcome := read.Answers[0].Outcome; outcome {
		case line.Waiting, line.TooLate, line.LineFull:
			known[i] = fmt.Sprintf("%d far ahead", outcome)
		}
	}
	return known
}
