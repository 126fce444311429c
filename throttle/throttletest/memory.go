package throttletest

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// memory answers a throttle's scripts as Redis does, by package line.
type memory struct {
	redis.Scripter // nil: nothing else is called

	line   *line.Line
	now    int64
	latest map[string]int64 // how far off the deadlines of jobs are, us
	pause  int64            // how long the next pause is, us
	lasts  int64            // how long what is set next lasts, us

	asked map[string]answered // by asker
}

// answered is the last asking of an asker and its answer.
type answered struct {
	asking int64
	reply  string
}

func newMemory() *memory {
	return &memory{line: line.New(), latest: make(map[string]int64), asked: make(map[string]answered)}
}

func (m *memory) clone() *memory {
	c := newMemory()
	c.line, c.now = m.line.Clone(), m.now
	return c
}

// request is what a script is asked.
type request struct {
	settings line.Settings
	args     []string // behind those that all scripts begin with
}

// verbs are what the scripts do, by their hashes.
var verbs = map[string]func(m *memory, r request) (any, error){
	hashOf(lua.Reserve): (*memory).reserve,
	hashOf(lua.Pull):    (*memory).pull,
	hashOf(lua.Leave):   (*memory).leave,
	hashOf(lua.Settle):  (*memory).settle,
	hashOf(lua.Running): (*memory).running,
	hashOf(lua.Set):     (*memory).set,
	hashOf(lua.Report):  (*memory).report,
	hashOf(lua.Usage):   (*memory).usage,
	hashOf(lua.Lines):   (*memory).lines,
}

func hashOf(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

var errNoScript = errors.New("throttletest: the model does not know this script")

// EvalSha runs a script.
func (m *memory) EvalSha(_ context.Context, hash string, _ []string, args ...any) *redis.Cmd {
	verb, is := verbs[hash]
	if !is {
		return redis.NewCmdResult(nil, errNoScript)
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	return redis.NewCmdResult(verb(m, request{settings: settingsOf(texts[1], texts[2]), args: texts[3:]}))
}

// integer reads what a throttle wrote.
func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("throttletest: " + err.Error())
	}
	return n
}

func integers(text, between string) (list []int64) {
	for part := range strings.SplitSeq(text, between) {
		list = append(list, integer(part))
	}
	return list
}

// settingsOf reads "lookahead grace kept lower" and "name=mode:limits;...".
func settingsOf(times, scopes string) line.Settings {
	t := integers(times, " ")
	s := line.Settings{Lookahead: t[0], Grace: t[1], Lower: t[3], Scopes: make(map[string]line.Scope)}
	for scope := range strings.SplitSeq(strings.TrimSuffix(scopes, ";"), ";") {
		name, rest, _ := strings.Cut(scope, "=")
		s.Scopes[name] = line.Scope{Mode: line.Mode(rest[0]), Limits: limitsOf(rest[2:])}
	}
	return s
}

func limitsOf(text string) []line.Limit {
	limits, err := line.ParseLimits(text)
	if err != nil {
		panic("throttletest: " + err.Error())
	}
	return limits
}

func costsOf(lane, text string) []int64 {
	costs := integers(text, ",")
	_, keys, _ := strings.Cut(lane, "|")
	for n := strings.Count(keys, ",") + 1; len(costs) < n; {
		costs = append(costs, costs[0])
	}
	return costs
}

func (m *memory) reserve(r request) (any, error) {
	asker, asking := r.args[0], integer(r.args[1])
	if last, known := m.asked[asker]; known && asking > 0 {
		switch {
		case last.asking == asking:
			return last.reply, nil
		case last.asking > asking:
			return nil, errors.New("STALE " + r.args[1])
		}
	}
	var jobs []line.Job
	for rest := r.args[2:]; len(rest) > 0; rest = rest[3:] {
		costs, others, _ := strings.Cut(rest[2], " ")
		n := integers(others, " ")
		job := line.Job{ID: rest[0], Lane: rest[1], Costs: costsOf(rest[1], costs), Plan: n[0] == 1, MaxWait: n[1],
			Latest: n[2], Share: n[3]}
		if latest, known := m.latest[job.ID]; known {
			job.Latest = latest
		}
		jobs = append(jobs, job)
	}
	of := m.line
	if asking == 0 {
		of = m.line.Clone() // nothing is written
	}
	answers := of.Reserve(m.now, r.settings, jobs)
	lines := make([]string, len(answers))
	for i, a := range answers {
		lines[i] = answerText(a)
	}
	reply := fmt.Sprintf("%d %d\n", m.now, m.line.Next()) + strings.Join(lines, "\n")
	if asking > 0 {
		m.asked[asker] = answered{asking, reply}
	}
	return reply, nil
}

func answerText(a line.Answer) string {
	text := fmt.Sprintf("%d %d%s", a.Outcome, a.Start, toldText(a.Held))
	switch a.Outcome {
	case line.Granted:
		text = fmt.Sprintf("%d %d %d", a.Outcome, a.Start, a.Lease)
		if len(a.Uncharged) > 0 {
			text += " !" + strings.Join(a.Uncharged, ",")
		}
		if a.Shadow != nil {
			text += fmt.Sprintf(" %s %d", holderText(a.Shadow), a.Until)
		}
	case line.Waiting:
		if a.Held == nil {
			text += " - 0 0"
		}
		text += fmt.Sprintf(" %d %d", a.Ahead, a.Flows)
	case line.TooHeavy:
		text = fmt.Sprintf("%d %s %c", a.Outcome, holderText(a.Held), a.Held.Origin)
	}
	return text
}

func toldText(h *line.Held) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf(" %s %d %d", holderText(h), h.Used, h.Booked)
}

func holderText(h *line.Held) string {
	if h.Limit == nil {
		return h.Key + "/p"
	}
	return h.Key + "/" + h.Limit.String()
}

// stamped is an answer that begins with now and when the line is to be pulled.
func (m *memory) stamped(rest ...any) []any {
	return append([]any{strconv.FormatInt(m.now, 10), strconv.FormatInt(m.line.Next(), 10)}, rest...)
}

func (m *memory) pull(r request) (any, error) {
	n := integers(r.args[0], " ")
	r.settings.Timed = n[3] == 1
	held := m.ended(r.settings, r.args[1:], true)
	pulled := m.line.Pull(m.now, r.settings, int(n[0]), int(n[1]))
	reply := m.stamped(append([]any{strconv.Itoa(len(pulled.Booked)), "", "0"}, held...)...)
	for _, told := range [][]line.Told{pulled.Booked, pulled.Overdue} {
		for _, t := range told {
			reply = append(reply, t.ID, strconv.FormatInt(t.Slot, 10), t.Lane)
		}
	}
	return reply, nil
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (m *memory) leave(r request) (any, error) {
	var ids []string
	for i := 0; i < len(r.args); i += 3 {
		ids = append(ids, r.args[i])
	}
	var left []any
	for _, done := range m.line.Leave(m.now, r.settings, ids) {
		left = append(left, flag(done))
	}
	return m.stamped(left...), nil
}

func (m *memory) settle(r request) (any, error) {
	n, lane := integers(r.args[4], " "), r.args[1]
	grant := line.Grant{ID: r.args[0], Lane: lane, Costs: costsOf(lane, r.args[2]), Start: n[0], Decided: n[1]}
	done := m.line.Settle(m.now, r.settings, grant, costsOf(lane, r.args[3]), n[2], n[4] == 1)
	return m.stamped(flag(done)), nil
}

func (m *memory) running(r request) (any, error) {
	r.settings.Timed = strings.HasSuffix(r.args[0], "1")
	held := m.ended(r.settings, r.args[1:], strings.HasPrefix(r.args[0], "done"))
	return m.stamped(held...), nil
}

// ended ends what grants hold, or renews it: "id", "start", "cool-downs" of each.
func (m *memory) ended(settings line.Settings, grants []string, isDone bool) (held []any) {
	for ; len(grants) > 0; grants = grants[3:] {
		one := []line.Grant{{ID: grants[0], Start: integer(grants[1])}}
		if isDone {
			held = append(held, flag(m.line.Done(m.now, settings, one, cooldownsOf(grants[2]))[0]))
		} else {
			held = append(held, flag(m.line.Renew(m.now, settings, one)[0]))
		}
	}
	return held
}

// cooldownsOf reads "scope=us,...".
func cooldownsOf(text string) map[string]int64 {
	cooldowns := make(map[string]int64)
	for part := range strings.SplitSeq(text, ",") {
		if scope, us, is := strings.Cut(part, "="); is {
			cooldowns[scope] = integer(us)
		}
	}
	return cooldowns
}

func (m *memory) set(r request) (any, error) {
	before, is, ends := "", r.args[2], line.Never
	if r.args[3] != "0" {
		ends = m.now + m.lasts
	}
	switch what, name := r.args[0], r.args[1]; what {
	case "pause", "resume":
		until := int64(0)
		if what == "pause" {
			until = m.now + m.pause
		}
		was, now := m.line.Pause(m.now, r.settings, name, until)
		before, is = strconv.FormatInt(was, 10), strconv.FormatInt(now, 10)
	case "limits":
		m.line.SetLimits(m.now, r.settings, name, limitsOf(is), ends)
	case "mode":
		mode := line.Mode(0)
		if is != "" {
			mode = line.Mode(is[0])
		}
		m.line.SetMode(m.now, r.settings, name, mode, ends)
	}
	return m.stamped(before, is), nil
}

func (m *memory) report(r request) (any, error) {
	n := integers(r.args[1], " ")
	said := line.Report{Refused: n[0] == 1, Started: n[1], Wait: n[2], Floor: n[3]}
	for text := range strings.SplitSeq(r.args[2], ",") {
		if text != "" {
			l := integers(text, "/")
			said.Limits = append(said.Limits, line.ReportedLimit{Window: l[0], Units: l[1], Remaining: l[2]})
		}
	}
	before, is, paused := m.line.Report(m.now, r.settings, r.args[0], said)
	return m.stamped(strconv.FormatInt(before, 10), strconv.FormatInt(is, 10), strconv.FormatInt(paused, 10)), nil
}

func (m *memory) usage(r request) (any, error) {
	reply := []any{strconv.FormatInt(m.now, 10)}
	for _, name := range r.args[1:] {
		state := m.line.State(m.now, r.settings, name)
		lines := []string{fmt.Sprintf("%d %d %c %c %d %d %d", state.Paused, state.Part, state.Mode, state.Origin,
			state.Ends, state.Flows, state.Timer)}
		for _, u := range state.Limits {
			lines = append(lines, fmt.Sprintf("%s %d %d %d", u.Limit, u.Used, u.Booked, u.Free))
		}
		ledgers := m.line.KeySnapshot(m.now, r.settings, name).Ledgers
		if interval, is := strings.CutPrefix(r.args[0], "c "); is {
			n := integers(interval, " ")
			lines = append(lines, fmt.Sprintf("# %d", m.count(ledgers, n[0], n[1])))
		} else if r.args[0] == "e" {
			lines = append(lines, entriesText(ledgers)...)
		}
		reply = append(reply, strings.Join(lines, "\n"))
	}
	return reply, nil
}

// count are the units in a past interval, by the finest of the windows that reach so far.
func (m *memory) count(ledgers []line.LedgerSnapshot, from, to int64) int64 {
	best := -1
	for i, w := range ledgers {
		if w.Kind == line.Sliding && w.Length >= from && (best < 0 || w.Precision < ledgers[best].Precision) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	w, units := ledgers[best], int64(0)
	for _, e := range w.Spent {
		if e.At >= (m.now+w.Shift-from)/w.Precision && e.At*w.Precision < m.now+w.Shift-to {
			units += e.Units
		}
	}
	return units
}

func entriesText(ledgers []line.LedgerSnapshot) (lines []string) {
	for _, w := range ledgers {
		text := fmt.Sprintf("= %s %d %d %d", w.Span, w.Precision, w.N, w.Shift)
		for _, entries := range [][]line.Entry{w.Spent, w.Booked} {
			all := ""
			for _, e := range entries {
				all += fmt.Sprintf("%016d%016d", e.At, e.Units)
			}
			text += " " + cmp.Or(all, "-")
		}
		lines = append(lines, text)
	}
	return lines
}
