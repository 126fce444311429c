package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const second = int64(1_000_000)

// TestScriptsAgreeWithLine goes through random histories and compares the scripts with
// package line at every step.
func TestScriptsAgreeWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			history(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{agree-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

// TestUsualCaseAgreesWithLine is the same where mostly light jobs find room under large limits,
// until these are full: the case that is decided on a way of its own.
func TestUsualCaseAgreesWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			usualHistory(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{usual-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

// TestUsualCaseLeavesFineLedgers: a ledger that gets coarser, since it counts many units, does so on the way of the
// usual case too.
func TestUsualCaseLeavesFineLedgers(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		exact := []line.Limit{{Units: 20_000, Span: line.Window(7 * second), Precision: 1}}
		m := newMachine(&scripted{client: client, prefix: fmt.Sprintf("thr:{fine-%p}:4:", t), settings: line.Settings{
			Lookahead: second, Scopes: map[string]line.Scope{"global": {Mode: line.Enforce, Limits: exact}},
		}})
		for i, cost := range []int64{4900, 16_000, 7000} {
			jobs := []line.Job{{ID: fmt.Sprint(i), Lane: "|global:", Costs: []int64{cost}, Latest: line.Never, Share: 1}}
			_, got, err := m.s.reserve(m.now, jobs)
			want := wire.AnswerText(m.l.Reserve(m.now, m.s.settings, jobs)[0])
			if err != nil || got[0] != want {
				t.Errorf("%d units: the script answers %q, %v; package line %q", cost, got[0], err, want)
			}
			m.now++
		}
	})
}

// TestRaisedLimitsAgreeWithLine is the same where exact limits are raised, so that their ledgers become
// coarser.
func TestRaisedLimitsAgreeWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			raisedHistory(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{raised-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

type machine struct {
	s      *scripted
	l      *line.Line
	now    int64
	drawn  int
	jobs   map[string]line.Job
	slots  map[string]int64
	ids    []string
	grants []line.Grant
}

func drawLimits(t *rapid.T, name string) []line.Limit {
	windows := []int64{second, 7 * second, 60 * second, 3600 * second}
	var limits []line.Limit
	if rapid.SampledFrom([]bool{true, false, false}).Draw(t, "running") {
		lease := rapid.SampledFrom([]int64{second, 7 * second, 30 * second}).Draw(t, "lease")
		limits = append(limits, line.Limit{
			Units: rapid.SampledFrom([]int64{1, 2, 3, 5, 10, -1}).Draw(t, "at once"), Span: line.Lease(lease),
			Precision: rapid.SampledFrom([]int64{1, lease / 1000, lease / 3}).Draw(t, "precision of the lease"),
		})
	}
	for _, w := range windows {
		if !rapid.SampledFrom([]bool{true, false, false}).Draw(t, name) {
			continue
		}
		units := rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 30, 101, 700, 5000, -1}).Draw(t, "units")
		l := line.Limit{Units: units, Span: line.Window(w)}
		l.Precision = rapid.SampledFrom([]int64{1, 1, w / 100, w / 20, w / 3, w}).Draw(t, "precision")
		limits = append(limits, l)
	}
	return append(drawHours(t), append(limits, drawQuotas(t)...)...)
}

// drawHours are hours that open or close around the time in which the histories begin. All of them are open on some
// Wednesday.
func drawHours(t *rapid.T) (limits []line.Limit) {
	text := rapid.SampledFrom([]string{"", "", "", "", "Mon-Fri 09:00-17:00 @America/New_York",
		"Mon-Sun 22:00-06:00, except 2027-01-15 2027-01-16 @Asia/Kolkata", "Tue-Sun 00:02-00:05, Wed 00:00-24:00 @UTC",
		"Mon-Sun 00:00-00:01, Mon-Sun 00:03-24:00 @UTC",
		"Sat 10:00-12:00, Tue-Thu 00:00-24:00 @Australia/Lord_Howe"}).Draw(t, "hours")
	if text == "" {
		return nil
	}
	of, err := calendar.HoursOf(text)
	if err != nil {
		panic(err)
	}
	return []line.Limit{{Units: -1, Span: line.Open(of), Precision: 1}}
}

// drawQuotas are quotas of periods in which the histories begin, or end.
func drawQuotas(t *rapid.T) (limits []line.Limit) {
	texts := rapid.SampledFrom([][]string{nil, nil, {"day@America/New_York"}, {"day+9h@Asia/Kolkata"}, {"week@UTC"},
		{"day@UTC", "month+19d+1h@Europe/Paris"}, {"day+1h@Europe/Paris", "day@Australia/Lord_Howe"}}).Draw(t, "quotas")
	for _, text := range texts {
		limit := quotaOf(text, rapid.SampledFrom([]int64{1, 3, 10, 30, 700, 5000, -1}).Draw(t, "units"))
		if rapid.IntRange(0, 2).Draw(t, "ramp") == 0 {
			limit = drawRamp(t, limit)
		}
		limits = append(limits, limit)
	}
	slices.SortFunc(limits, func(a, b line.Limit) int { return a.Compare(b.Span) })
	return limits
}

// drawRamp gives a quota steps that begin before or after the histories do.
func drawRamp(t *rapid.T, limit line.Limit) line.Limit {
	of, err := calendar.Of(limit.Calendar)
	if err != nil {
		panic(err)
	}
	begins := of.Period(time.UnixMicro(newMachine(nil).now))
	steps := calendar.Steps{
		Units: rapid.SampledFrom([][]int64{{1}, {1, 2, 3}, {3, 30, 300, 5000}, {1, 10, 11, 100, 101, 5000}}).Draw(t, "steps"),
		First: begins + rapid.Int64Range(-3, 3).Draw(t, "first"),
		Every: rapid.SampledFrom([]int64{1, 1, 2, 5}).Draw(t, "every"),
	}
	if rapid.IntRange(0, 3).Draw(t, "is held") == 0 {
		steps.Held = begins + rapid.Int64Range(-2, 9).Draw(t, "held")
	}
	limit.Units, limit.Ramp = steps.Last(), line.RampText(steps)
	return limit
}

func quotaOf(text string, units int64) line.Limit {
	of, err := calendar.Of(text)
	if err != nil {
		panic(err)
	}
	span := line.Periods(of)
	return line.Limit{Units: units, Span: span, Precision: 1}
}

func history(t *rapid.T, s *scripted) {
	s.settings = line.Settings{
		Lookahead: rapid.SampledFrom([]int64{second / 10, second, second, 5 * second, 400 * 86400 * second}).Draw(
			t, "lookahead"),
		Grace:  rapid.SampledFrom([]int64{1000, second, 5 * second}).Draw(t, "grace"),
		Scopes: make(map[string]line.Scope),
		Timed:  rapid.Bool().Draw(t, "timed"),
		Lower:  rapid.SampledFrom([]int64{9, 9, 1, 99}).Draw(t, "lower"),
	}
	s.steps = rapid.SampledFrom([]int{0, 0, 0, 30, 100, 300}).Draw(t, "steps")
	for _, name := range []string{"global", "tenant", "domain"} {
		mode := rapid.SampledFrom([]line.Mode{line.Enforce, line.Enforce, line.Enforce, line.Enforce, line.Shadow,
			line.Off}).Draw(t, "mode")
		s.settings.Scopes[name] = line.Scope{Mode: mode, Limits: drawLimits(t, name)}
	}
	s.settings.Counts = rapid.SampledFrom([]bool{true, true, false}).Draw(t, "counts")
	m := newMachine(s)
	t.Repeat(map[string]func(*rapid.T){
		"":          m.compareLengths,
		"advance":   m.advance,
		"arrive":    m.arrive,
		"arrive ":   m.arrive,
		"rollout":   m.rollOut,
		"come back": m.comeBack,
		"move":      m.move,
		"on time":   m.onTime,
		"pull":      m.pull,
		"pull ":     m.pull,
		"pulls":     m.pulls,
		"leave":     m.leave,
		"settle":    m.settle,
		"done":      m.done,
		"done ":     m.done,
		"renew":     m.renew,
		"pause":     m.pause,
		"report":    m.report,
		"report ":   m.report,
		"limits":    m.limits,
		"mode":      m.mode,
		"usage":     m.usage,
		"forget":    m.forget,
	})
}

func usualHistory(t *rapid.T, s *scripted) {
	s.settings = line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: make(map[string]line.Scope)}
	for _, name := range []string{"global", "tenant", "domain"} {
		var limits []line.Limit
		for _, w := range []int64{7 * second, 60 * second} {
			precision := rapid.SampledFrom([]int64{1, w / 100, w / 3}).Draw(t, "precision")
			if w == 7*second && rapid.Bool().Draw(t, "running") {
				limits = append(limits, line.Limit{Units: rapid.SampledFrom([]int64{50, 1000}).Draw(t, "at once"),
					Span: line.Lease(5 * second), Precision: second / 200})
			}
			limits = append(limits,
				line.Limit{Units: rapid.SampledFrom([]int64{100, 1000, 20_000}).Draw(t, "units"), Span: line.Window(w),
					Precision: precision})
		}
		limits = append(limits, drawQuotas(t)...)
		limits = limits[:rapid.IntRange(0, len(limits)).Draw(t, name)]
		s.settings.Scopes[name] = line.Scope{Mode: line.Enforce, Limits: append(drawHours(t), limits...)}
	}
	m := newMachine(s)
	m.now -= 302 * second // before a midnight in UTC
	t.Repeat(map[string]func(*rapid.T){
		"advance":  m.pass,
		"advance ": m.pass,
		"arrive":   m.arriveUsual,
		"arrive ":  m.arriveUsual,
		"settle":   m.settle,
		"done":     m.done,
		"done ":    m.done,
		"renew":    m.renew,
		"on time":  m.onTime,
		"pull":     m.pull,
		"usage":    m.usage,
		"usage ":   m.usage,
		"any else": m.arrive,
	})
}

func raisedHistory(t *rapid.T, s *scripted) {
	s.settings = line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: make(map[string]line.Scope)}
	for _, name := range []string{"global", "tenant", "domain"} {
		mode := rapid.SampledFrom([]line.Mode{line.Enforce, line.Enforce, line.Shadow}).Draw(t, "mode")
		s.settings.Scopes[name] = line.Scope{Mode: mode, Limits: drawRaised(t, 100)}
	}
	m := newMachine(s)
	raise := func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"global:", "tenant:a", "global", "tenant", "domain"}).Draw(t, "of")
		limits := drawRaised(t, rapid.SampledFrom([]int64{100, 1000, 20_000, 20_000, 200_000, -1}).Draw(t, "units"))
		m.l.SetLimits(m.now, m.s.settings, name, limits, line.Never)
		m.compareSet(t, "limits", name, line.LimitsText(limits), 0, "", line.LimitsText(limits))
	}
	t.Repeat(map[string]func(*rapid.T){
		"advance":   m.pass,
		"arrive":    m.arriveHeavy,
		"arrive ":   m.arriveHeavy,
		"arrive  ":  m.arriveHeavy,
		"come back": m.comeBack,
		"on time":   m.onTime,
		"raise":     raise,
		"raise ":    raise,
		"settle":    m.settle,
		"leave":     m.leave,
		"report":    m.report,
		"pull":      m.pull,
		"usage":     m.usage,
	})
}

// drawRaised are limits of two windows that are fine for so many units.
func drawRaised(t *rapid.T, units int64) (limits []line.Limit) {
	for _, w := range []int64{7*second + 1, 60 * second} {
		precision := rapid.SampledFrom([]int64{1, 1, 7, w / 300, w / 100}).Draw(t, "precision")
		limits = append(limits, line.Limit{Units: units, Span: line.Window(w), Precision: precision})
	}
	return limits
}

// arriveHeavy has jobs come of up to half of a thousand units. Fewer stand than one call hurries: package line
// hurries them all.
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
		t.Skip("many stand")
	}
	m.ask(t, jobs)
}

func newMachine(s *scripted) *machine {
	return &machine{s: s, l: line.New(), now: 1_795_219_498_189_530, jobs: make(map[string]line.Job),
		slots: make(map[string]int64)}
}

func (m *machine) advance(t *rapid.T) {
	step := rapid.SampledFrom([]int64{1, 1000, second / 20, second / 3, second, 5 * second, 61 * second,
		3700 * second, 50_000 * second, 8 * 86_400 * second}).Draw(t, "step")
	m.now += step
}

// pass lets a part of a window pass, so that some of what counts leaves it.
func (m *machine) pass(t *rapid.T) {
	m.now += rapid.SampledFrom([]int64{1, 1000, second / 3, second, 3 * second, 5 * second}).Draw(t, "step")
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

// arriveUsual has jobs come that cost the same under all their scope keys, to start as soon
// as they can.
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
				Decided: m.now})
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
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("reserve (-line +script):\n%s", diff)
	}
	if want := m.l.Next(); next != want {
		t.Fatalf("next %d, want %d", next, want)
	}
	if len(rest) > 0 {
		m.ask(t, rest)
	}
}

// advanceIn returns the advance of an answer, which is at most what was asked for. The script may give less than the
// model allows, or none: it gives one only in its usual case.
func advanceIn(t *rapid.T, answer string, asked int64) int64 {
	read, err := wire.ReadDecisions("1 0\n" + answer)
	if err != nil || read.Answers[0].Advance > asked {
		t.Fatalf("an advance of %d was asked for: %q, %v", asked, answer, err)
	}
	return read.Answers[0].Advance
}

// rollOut has the next calls come from a process that bounds lines, or from one that does not.
func (m *machine) rollOut(*rapid.T) { m.s.settings.Counts = !m.s.settings.Counts }

// compareLengths compares how long each line is by the scripts with the jobs of package line.
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
		t.Skip("nobody")
	}
	m.ask(t, []line.Job{m.jobs[rapid.SampledFrom(m.ids).Draw(t, "who")]})
}

// move has a job ask again as a job that is drawn anew: with other keys, costs or bounds.
func (m *machine) move(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("nobody")
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
		t.Skip("nobody")
	}
	// The clock does not step back here: a script that only looks does not keep what it has seen leave, package line does.
	m.now = max(m.now, m.slots[first]+rapid.SampledFrom([]int64{0, 0, -100_000, 50_000}).Draw(t, "late"))
	m.ask(t, []line.Job{m.jobs[first]})
}

func (m *machine) pull(t *rapid.T) {
	if next := m.l.Next(); next > m.now && next < line.Never/2 && rapid.Bool().Draw(t, "when due") {
		m.now = next
	}
	bookings, looks := 50, 200
	if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "bounded") {
		bookings, looks = 2, 3
	}
	m.pullOnce(t, bookings, looks)
}

func (m *machine) pullOnce(t *rapid.T, bookings, looks int) {
	brings, pull := rapid.SampledFrom([]int{1, 1, 0}).Draw(t, "brings"), m.l.Pull
	if brings == 0 {
		pull = m.l.PullOnly
	}
	got, ends, err := m.s.pull(m.now, bookings, looks, brings)
	if err != nil {
		t.Fatal(err)
	}
	m.l.Ends = ends
	want := pull(m.now, m.s.settings, bookings, looks)
	if diff := cmp.Diff(pulledText(want), got); diff != "" {
		t.Fatalf("pull (-line +script):\n%s", diff)
	}
	for _, told := range want.Booked {
		m.slots[told.ID] = told.Slot
	}
}

// pulls has jobs come and the line pulled when it is due, for a while.
func (m *machine) pulls(t *rapid.T) {
	for range rapid.IntRange(1, 30).Draw(t, "times") {
		if rapid.Bool().Draw(t, "comes") {
			m.ask(t, []line.Job{m.drawJob(t)})
		}
		if next := m.l.Next(); next < line.Never/2 {
			m.now = max(m.now, next)
		}
		m.pullOnce(t, 50, 200)
	}
}

func (m *machine) leave(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("nobody")
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

func (m *machine) settle(t *rapid.T) {
	if len(m.grants) == 0 {
		t.Skip("nothing granted")
	}
	g := rapid.SampledFrom(m.grants[max(0, len(m.grants)-8):]).Draw(t, "which")
	rebook := rapid.SampledFrom([]bool{false, false, true}).Draw(t, "rebook")
	actual := make([]int64, len(g.Costs))
	for i := range actual {
		if !rebook {
			actual[i] = rapid.SampledFrom([]int64{0, 1, 3, 20}).Draw(t, "actual")
		}
	}
	const within = 3600 * second // a mark expires by the server's clock, which the test does not move
	flow, _, _ := strings.Cut(g.Lane, "|")
	share := map[string]int64{"a": 1, "b": 1, "c": 3}[flow[:1]]
	want := m.l.Settle(m.now, m.s.settings, g, actual, within, rebook)
	got, err := m.s.settle(m.now, g, actual, within, share, rebook)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(m.l.Next()), map[bool]string{true: "1", false: "0"}[want]}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("settle %+v (-line +script):\n%s", g, diff)
	}
	if want && rebook {
		m.ids = append(m.ids, g.ID)
		m.jobs[g.ID] = line.Job{ID: g.ID, Lane: g.Lane, Costs: g.Costs, Latest: line.Never, Share: share}
		m.slots[g.ID] = g.Start
	}
}

// done ends granted jobs, some of them again.
func (m *machine) done(t *rapid.T) {
	cooldowns := map[string]int64{}
	for _, scope := range []string{"tenant", "domain"} {
		if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "cools down") {
			cooldowns[scope] = rapid.SampledFrom([]int64{1, second / 3, 3 * second, 100 * second}).Draw(t, "for")
		}
	}
	grants := m.some(t)
	want := m.l.Done(m.now, m.s.settings, grants, cooldowns)
	if rapid.Bool().Draw(t, "and pulls") {
		m.compareHandOver(t, grants, want, cooldowns)
		return
	}
	got, err := m.s.running(m.now, false, grants, cooldowns)
	m.compareRunning(t, "done", want, got, err)
}

// compareHandOver has the places given back and the line pulled in one call.
func (m *machine) compareHandOver(t *rapid.T, grants []line.Grant, held []bool,
	cooldowns map[string]int64) {
	got, ends, err := m.s.pull(m.now, 50, 200, 1, ended(grants, cooldowns)...)
	if err != nil {
		t.Fatal(err)
	}
	m.l.Ends = ends
	want := m.l.Pull(m.now, m.s.settings, 50, 200)
	texts := pulledText(want)
	for i, is := range held {
		texts = slices.Insert(texts, 3+i, map[bool]string{true: "1", false: "0"}[is])
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("done and pull (-line +script):\n%s", diff)
	}
	for _, told := range want.Booked {
		m.slots[told.ID] = told.Slot
	}
}

func (m *machine) renew(t *rapid.T) {
	grants := m.some(t)
	want := m.l.Renew(m.now, m.s.settings, grants)
	got, err := m.s.running(m.now, true, grants, nil)
	m.compareRunning(t, "renew", want, got, err)
}

func (m *machine) compareRunning(t *rapid.T, what string, want []bool, got []string, err error) {
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(m.l.Next())}
	for _, held := range want {
		texts = append(texts, map[bool]string{true: "1", false: "0"}[held])
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("%s (-line +script):\n%s", what, diff)
	}
}

// some of the last grants.
func (m *machine) some(t *rapid.T) []line.Grant {
	if len(m.grants) == 0 {
		t.Skip("nothing granted")
	}
	last := m.grants[max(0, len(m.grants)-12):]
	of := rapid.SliceOfN(rapid.IntRange(0, len(last)-1), 1, 5).Draw(t, "which")
	grants := make([]line.Grant, len(of))
	for i, n := range of {
		grants[i] = last[n]
	}
	return grants
}

func (m *machine) drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"global:", "tenant:a", "tenant:b", "tenant:c", "domain:x", "domain:y"}).Draw(
		t, "name")
}

func (m *machine) pause(t *rapid.T) {
	name := m.drawName(t)
	length := rapid.SampledFrom([]int64{0, 0, second, 100 * second}).Draw(t, "for")
	what, value, until := "resume", "", int64(0)
	if length > 0 {
		what, value, until = "pause", fmt.Sprint(length), m.now+length
	}
	before, is := m.l.Pause(m.now, m.s.settings, name, until)
	m.compareSet(t, what, name, value, 0, fmt.Sprint(before), fmt.Sprint(is))
}

func (m *machine) compareSet(t *rapid.T, what, name, value string, lasts int64, before, after string) {
	got, err := m.s.set(m.now, what, name, value, lasts)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(m.l.Next()), before, after}
	if what == "limits" || what == "mode" {
		want[1], got[1] = "", ""
		if value != "" {
			want[2] += fmt.Sprintf("|%d", m.endOf(lasts)%line.Never)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("set %s %s %s (-line +script):\n%s", what, name, value, diff)
	}
}

// endOf is when what is set for so long ends.
func (m *machine) endOf(lasts int64) int64 {
	if lasts == 0 {
		return line.Never
	}
	return m.now + lasts
}

func drawLasts(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 0, 1, second / 5, second, 7 * second, 90 * second}).Draw(t, "lasts")
}

// report is what an upstream said, now, for a request of just now, of before or of one that was granted.
func (m *machine) report(t *rapid.T) {
	name := m.drawName(t)
	r := line.Report{
		Refused: rapid.Bool().Draw(t, "refused"),
		Wait:    rapid.SampledFrom([]int64{0, 0, 1, second, 90 * second}).Draw(t, "asks to wait"),
		Floor:   rapid.SampledFrom([]int64{1, 100, 500, 999}).Draw(t, "floor"),
	}
	r.Started = rapid.SampledFrom([]int64{0, m.now, m.now - second, m.now - 60*second}).Draw(t, "started")
	for range rapid.IntRange(0, 2).Draw(t, "windows told") {
		r.Limits = append(r.Limits, line.ReportedLimit{
			Window: rapid.SampledFrom([]int64{0, second, 7 * second, 60 * second, 3600 * second,
				86_400 * second}).Draw(t, "window"),
			Units:     rapid.SampledFrom([]int64{0, 1, 2, 7, 29, 100, 1 << 53}).Draw(t, "told"),
			Remaining: rapid.SampledFrom([]int64{-1, 0, 1, 5, 1 << 53}).Draw(t, "remaining"),
		})
	}
	before, is, paused := m.l.Report(m.now, m.s.settings, name, r)
	got, err := m.s.report(m.now, name, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(m.l.Next()), fmt.Sprint(before), fmt.Sprint(is), fmt.Sprint(paused)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("report %s %+v (-line +script):\n%s", name, r, diff)
	}
}

func (m *machine) limits(t *rapid.T) {
	name := rapid.SampledFrom([]string{"global:", "tenant:a", "domain:x", "global", "tenant", "domain"}).Draw(t, "of")
	limits := drawLimits(t, "set")
	if len(limits) == 0 {
		limits = nil
	}
	for i := range limits {
		if limits[i].Kind != line.Hours && rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "closed") {
			limits[i].Units, limits[i].Ramp = 0, ""
		}
	}
	lasts := drawLasts(t)
	m.l.SetLimits(m.now, m.s.settings, name, limits, m.endOf(lasts))
	m.compareSet(t, "limits", name, line.LimitsText(limits), lasts, "", line.LimitsText(limits))
}

func (m *machine) mode(t *rapid.T) {
	scope := rapid.SampledFrom([]string{"", "global", "tenant", "domain"}).Draw(t, "of")
	text := rapid.SampledFrom([]string{"", "e", "s", "o"}).Draw(t, "mode")
	mode := line.Mode(0)
	if text != "" {
		mode = line.Mode(text[0])
	}
	lasts := drawLasts(t)
	m.l.SetMode(m.now, m.s.settings, scope, mode, m.endOf(lasts))
	m.compareSet(t, "mode", scope, text, lasts, "", text)
}

// forget loses the edges of all calendars, which are computed again.
func (m *machine) forget(t *rapid.T) {
	if err := m.s.client.Del(context.Background(), m.s.prefix+"edges").Err(); err != nil {
		t.Fatal(err)
	}
	m.s.far = 0
}

func (m *machine) usage(t *rapid.T) {
	name := m.drawName(t)
	want := wire.StateText(m.l.State(m.now, m.s.settings, name))
	got, err := m.s.usage(m.now, name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("usage %s (-line +script):\n%s", name, diff)
	}
}
