package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// overview is the first page.
type overview struct {
	Many             bool // more jobs wait than are read
	Jobs, FlowsInAll int64
	Started, PutBack rateText
	Counted          bool // Options.Stats is set
	Stats            worker.Stats
	Load             view.Load
	Alive, Differing int
	Rows             []keyRow
	Folded           []keyRow // idle, or alike to rows that are shown
	FoldedText       string
	Set              []changeRow
	SetMore          int
	SetKnown         bool
	SetAge           time.Duration // since the settings were read; 0 if just now
	Backlog          *backlogChart
	Flows            []flowRow
	More             int
	LineAt           time.Time
}

type rateText struct {
	Known      bool
	Now, Spark string
}

// keyRow is one scope key with its limits; if these are not known, Problem has the reason.
type keyRow struct {
	Scope, Key string
	Uses       []useRow
	Waiting    int64 // jobs
	Spark      string
	Problem    string
}

// flowRow is the waiting jobs of a flow, and what they wait for.
type flowRow struct {
	instantNow
	Flow scopeKey
	// Without is the fair scope in a row of jobs that have no key of it.
	Without string
	Jobs    int64
	Since   time.Time
	For     scopeKey
	// Others is how many other scope keys the jobs wait for.
	Others int64
	Why    string
	Until  time.Time
	Known  bool // the reason is known, as far as it can be
	// Same is the number of flows that a row stands for, 0 in a row of one flow. They wait for the
	// same scope key or, if For is empty, each for a limit of its own.
	Same int
}

func overviewOf(b *board, counted bool) overview {
	o := overview{
		Many: b.line.many, Jobs: b.line.flows.Jobs, FlowsInAll: int64(b.line.flows.Flows),
		Started: b.started.text(), PutBack: b.putBack.text(), Counted: counted, Stats: b.stats,
		Load: b.process.load, LineAt: b.line.at,
	}
	o.Alive, o.Differing = view.Differing(b.process.all)
	flows := b.flowRows(b.line.flows)
	o.Flows, o.More = grouped(flows), b.line.flows.InAll-len(flows)
	o.Rows, o.Folded, o.FoldedText = b.fold()
	o.Backlog = backlogOf(b.process.noted, b.now)
	o.Set, o.SetKnown = b.setRows(b.process.sets.At(b.now)), b.process.sets.Known
	o.SetAge = b.setAge()
	slices.SortStableFunc(o.Set, func(x, y changeRow) int { return cmp.Compare(pausedFirst(x), pausedFirst(y)) })
	if more := len(o.Set) - mostRows; more > 0 {
		o.Set, o.SetMore = o.Set[:mostRows], more
	}
	return o
}

// setAge returns how old the settings on this board are; 0 for less than a second.
func (b *board) setAge() time.Duration {
	if age := b.process.sets.Age(); age > time.Second {
		return age.Truncate(time.Second)
	}
	return 0
}

func pausedFirst(row changeRow) int {
	if row.What != "pause" {
		return 1
	}
	return 0
}

// mostAlike is how many rows with the same text are shown.
const mostAlike = 3

// grouped puts flows that wait for the same into one row, except for the first few. A flow whose
// reason is unknown has a row of its own only while fewer than mostAlike rows of the same scope key
// are shown.
func grouped(rows []flowRow) []flowRow {
	type alike struct {
		scope, key, why string
	}
	var shown []flowRow
	seen, more := make(map[alike]int), make(map[alike]int)
	left := make(map[[2]string]int) // whatever the reason
	for _, row := range rows {
		is := alike{row.For.Scope, row.For.Key, row.Why}
		own := row.For == row.Flow
		if own {
			is.key = ""
		}
		target := [2]string{is.scope, is.key}
		if seen[is]++; seen[is] <= mostAlike && (row.Known || left[target] < mostAlike) {
			left[target]++
			shown = append(shown, row)
			continue
		}
		at, known := more[is]
		if !known {
			at = len(shown)
			more[is] = at
			shown = append(shown, flowRow{instantNow: row.instantNow, For: row.For, Why: row.Why})
			if own {
				shown[at].For = scopeKey{}
			}
		}
		shown[at].Same++
		shown[at].Jobs += row.Jobs
	}
	return shown
}

// fold sorts the paused scope keys first, then the blocked ones, then those in use. It folds idle
// scope keys, and rows that are alike.
func (b *board) fold() (shown, folded []keyRow, text string) {
	rank := func(key scopeKey) int {
		switch s := b.keys[key]; {
		case s == nil || s.err != nil:
			return 2
		case s.usage.Paused.After(s.usage.Now):
			return 0
		case b.line.under[key].Flows > 0 || s.usage.Waiting > 0:
			return 1
		case inUse(s.usage):
			return 2
		}
		return 3
	}
	keys := slices.Clone(b.rows)
	slices.SortStableFunc(keys, func(x, y scopeKey) int { return cmp.Compare(rank(x), rank(y)) })
	seen, alike, idle := make(map[string]int), 0, 0
	for _, key := range keys {
		row := b.keyRow(key)
		is := row.alike()
		if seen[is]++; rank(key) == 3 && key.Scope != throttle.Global {
			idle++
		} else if rank(key) > 0 && seen[is] > mostAlike {
			alike++
		} else {
			shown = append(shown, row)
			continue
		}
		folded = append(folded, row)
	}
	switch {
	case alike > 0 && idle > 0:
		text = fmt.Sprintf("%d more like these, %d idle", alike, idle)
	case alike > 0:
		text = fmt.Sprintf("%d more like these", alike)
	default:
		text = fmt.Sprintf("%d idle", idle)
	}
	return shown, folded, text
}

// alike returns the same text for rows that differ only in the key of their scope.
func (r keyRow) alike() string {
	text := r.Scope + r.Problem
	for _, u := range r.Uses {
		text += fmt.Sprint(" ", u.Limit, u.Bar.Full, u.SetFor, u.Mode, u.Served)
	}
	return text
}

func (r rate) text() rateText {
	return rateText{r.known, perSecond(r.now()), spark(r.last, 0)}
}

func (b *board) keyRow(key scopeKey) keyRow {
	row := keyRow{Scope: key.Scope, Key: key.Key, Waiting: b.line.under[key].Jobs}
	s := b.keys[key]
	switch {
	case s == nil:
		row.Problem = "not known"
	case s.err != nil:
		row.Problem = problem(s.err)
	default:
		row.Uses, row.Spark = useRows(s.usage, b.setText(s.usage)), spark(s.full, 1)
	}
	return row
}

// setText returns until when, by whom and why the limits of a scope key are set at run time.
func (b *board) setText(u inspect.Usage) string {
	if u.SetFor == "" {
		return ""
	}
	key := u.Key
	if u.SetFor == "scope" {
		key = ""
	}
	text := "set at run time for the " + u.SetFor
	for _, s := range b.process.sets.At(b.now) {
		if s.What != "limits" || s.Scope != u.Scope || s.Key != key {
			continue
		}
		if !s.Until.IsZero() {
			text += " until " + view.Clock(s.Until)
		}
		if text += ", by " + s.By; s.Why != "" {
			text += ": " + s.Why
		}
	}
	return view.Printable(text)
}

// itsTurn is the reason of jobs that wait although there is room.
const itsTurn = "its turn has not come"

// flowRows returns a row for each waiting flow, with what it waits for as far as that is known.
func (b *board) flowRows(w view.Waiting) []flowRow {
	rows := make([]flowRow, len(w.Rows))
	for i, r := range w.Rows {
		rows[i] = flowRow{instantNow: instantNow{b.now}, Jobs: r.Jobs, Since: r.Since, For: scopeKey{r.Scope, r.Key},
			Others: int64(r.Others)}
		switch fair := b.process.fair(); {
		case fair == "" || fair == throttle.Global:
		case r.Flow == "":
			rows[i].Without = fair
		default:
			rows[i].Flow = scopeKey{fair, r.Flow}
		}
		if s := b.keys[rows[i].For]; s != nil && s.err == nil {
			rows[i].Known = true
			rows[i].Why, rows[i].Until = r.Waits(s.usage, b.line.at)
			rows[i].Why = cmp.Or(rows[i].Why, itsTurn)
		}
	}
	return rows
}
