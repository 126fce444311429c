package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Reserve asks for decisions. Asking rises with each call of an asker; a call with 0 decides no job.
type Reserve struct {
	Asker  string
	Asking int64
	Jobs   []line.Job
}

// Arguments returns the arguments of reserve.lua.
func (r Reserve) Arguments() []string {
	args := make([]string, 0, 2+3*len(r.Jobs))
	args = append(args, r.Asker, integer(r.Asking))
	for _, j := range r.Jobs {
		terms := costsText(j.Costs) + " " + integers(' ', flag(j.Plan), j.MaxWait, j.Latest, j.Share)
		if j.Advance > 0 {
			terms += advance + integer(j.Advance)
		}
		if j.Bounds != nil {
			terms += " " + boundsText(j.Bounds)
		}
		args = append(args, j.ID, j.Lane, terms)
	}
	return args
}

// ReadReserve reads the arguments of reserve.lua.
func ReadReserve(args []string) (Reserve, error) {
	v := &Values{rest: args}
	r := Reserve{Asker: v.Text(), Asking: v.Natural()}
	for v.More() {
		j := line.Job{ID: v.Text(), Lane: v.Text()}
		terms := words(v.Text())
		j.Costs, j.Plan, j.MaxWait, j.Latest = terms.costs(j.Lane), terms.Flag(), terms.Natural(), terms.Integer()
		j.Share, j.Advance = terms.share()
		if terms.More() {
			j.Bounds = terms.bounds(len(j.Costs))
		}
		v.wrong = v.wrong || terms.Err() != nil
		r.Jobs = append(r.Jobs, j)
	}
	return r, v.Err()
}

// share reads a share, with an advance after it or without.
func (v *Values) share() (share, asked int64) {
	of := Values{rest: strings.SplitN(v.Text(), advance, 2)}
	share = of.Natural()
	if of.More() {
		asked = of.Natural()
	}
	v.wrong = v.wrong || of.Err() != nil
	return share, asked
}

// boundsText writes the bound of each scope key.
func boundsText(bounds []line.Length) string {
	texts := make([]string, len(bounds))
	for i, b := range bounds {
		texts[i] = integers('/', b.Jobs, b.Units)
	}
	return strings.Join(texts, ",")
}

// bounds reads the bounds of so many scope keys.
func (v *Values) bounds(keys int) (bounds []line.Length) {
	for text := range strings.SplitSeq(v.Text(), ",") {
		of := Values{rest: strings.Split(text, "/")}
		bounds = append(bounds, line.Length{Jobs: of.Natural(), Units: of.Natural()})
		v.wrong = v.wrong || of.Err() != nil
	}
	v.wrong = v.wrong || len(bounds) != keys
	return bounds
}

// Decisions is the answer of reserve.lua: for each job, or only for the first jobs if the call has taken its
// steps.
type Decisions struct {
	Stamp
	Answers []Decision
}

// Decision is the answer for one job. Err is ErrUnreadable, or an UndecidedError.
type Decision struct {
	line.Answer
	Err error
}

// UndecidedError is Redis' error for a job that could not be decided.
type UndecidedError string

func (u UndecidedError) Error() string { return string(u) }

// undecided is the outcome before an error.
const undecided = "0"

// noHolder marks a job that waits only for its turn.
const noHolder = "-"

// uncharged stands before the scope keys whose scope is off.
const uncharged = "!"

// advance stands before the units of an advance.
const advance = "+"

// String returns the reply of reserve.lua.
func (d Decisions) String() string {
	lines := make([]string, len(d.Answers))
	for i, answer := range d.Answers {
		lines[i] = AnswerText(answer.Answer)
	}
	return integers(' ', d.Now, d.Next) + "\n" + strings.Join(lines, "\n")
}

// AnswerText returns the line of one job in the reply.
func AnswerText(a line.Answer) string {
	outcome := integer(int64(a.Outcome))
	switch a.Outcome {
	case line.Granted:
		text := outcome + " " + integers(' ', a.Start, a.Lease, a.Waited)
		if a.Advance > 0 {
			text += " " + advance + integers(' ', a.Advance, a.AdvanceEnds)
		}
		if len(a.Uncharged) > 0 {
			text += " " + uncharged + strings.Join(a.Uncharged, ",")
		}
		if a.Shadow != nil {
			text += " " + holderText(a.Shadow) + " " + integer(a.Until)
		}
		return text
	case line.Waiting, line.LineFull:
		held := " " + noHolder + " 0 0"
		if a.Held != nil {
			held = heldText(a.Held)
		}
		text := outcome + " " + integer(a.Start) + held + " " + integers(' ', a.Ahead, a.Flows)
		if a.Full != nil {
			text += " " + a.Full.Key + " " + integers(' ', a.Full.Length.Jobs, a.Full.Length.Units)
		}
		return text
	case line.NeverFits:
		return outcome + " " + holderText(a.Held) + " " + string(a.Held.Origin)
	}
	return outcome + " " + integer(a.Start) + heldText(a.Held)
}

func heldText(h *line.Held) string {
	if h == nil {
		return ""
	}
	return " " + holderText(h) + " " + integers(' ', h.Used, h.Booked)
}

// pause stands in place of a limit if a pause holds the job.
const pause = "p"

func holderText(h *line.Held) string {
	if h.Limit == nil {
		return h.Key + "/" + pause
	}
	return h.Key + "/" + h.Limit.String()
}

// ReadDecisions reads the reply of reserve.lua.
func ReadDecisions(reply any) (Decisions, error) {
	text, isText := reply.(string)
	lines := strings.Split(text, "\n")
	head := words(lines[0])
	d := Decisions{Stamp: head.Stamp()}
	if head.Err() != nil || !isText || len(lines) < 2 {
		return Decisions{}, ErrUnreadable
	}
	if len(lines) == 2 && lines[1] == "" {
		return d, nil
	}
	for _, text := range lines[1:] {
		d.Answers = append(d.Answers, readDecision(text))
	}
	return d, nil
}

func readDecision(text string) Decision {
	if trouble, is := strings.CutPrefix(text, undecided+" "); is {
		return Decision{Err: UndecidedError(trouble)}
	}
	v := words(text)
	d := Decision{Answer: v.answer()}
	if d.Err = v.Err(); d.Err != nil {
		d.Answer = line.Answer{}
	}
	return d
}

func (v *Values) answer() line.Answer {
	a := line.Answer{Outcome: line.Outcome(v.Natural())}
	switch a.Outcome {
	case line.Granted:
		a.Start, a.Lease, a.Waited = v.Natural(), v.Natural(), v.Natural()
		if v.More() && strings.HasPrefix(v.rest[0], advance) {
			a.Advance, a.AdvanceEnds = v.Natural(), v.Natural()
		}
		if v.More() && strings.HasPrefix(v.rest[0], uncharged) {
			a.Uncharged = strings.Split(v.Text()[1:], ",")
		}
		if v.More() {
			a.Shadow, a.Until = v.holder(), v.Natural()
		}
	case line.Booked, line.TooLate:
		a.Start = v.Natural()
		if v.More() {
			a.Held = v.held()
		}
	case line.Waiting, line.LineFull:
		a.Start, a.Held, a.Ahead, a.Flows = v.Natural(), v.held(), v.Natural(), v.Natural()
		if a.Outcome == line.LineFull {
			a.Full = &line.Full{Key: v.Text(), Length: line.Length{Jobs: v.Natural(), Units: v.Natural()}}
		}
	case line.NeverFits:
		a.Held = v.holder()
		origin := v.letter()
		if v.wrong = v.wrong || a.Held == nil || a.Held.Limit == nil; !v.wrong {
			a.Held.Origin = origin
		}
	default:
		v.wrong = true
	}
	return a
}

// held reads the limit or pause that holds a job back, with the units used and booked there; nil for noHolder.
func (v *Values) held() *line.Held {
	h := v.holder()
	used, booked := v.Natural(), v.Natural()
	if h != nil {
		h.Used, h.Booked = used, booked
	}
	return h
}

func (v *Values) holder() *line.Held {
	text := v.Text()
	if text == noHolder {
		return nil
	}
	name, what, is := strings.Cut(text, "/")
	h := &line.Held{Key: name}
	if v.wrong = v.wrong || !is; what == pause {
		return h
	}
	limit, err := line.ParseLimit(what)
	h.Limit, v.wrong = &limit, v.wrong || err != nil
	return h
}
