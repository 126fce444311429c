package dashboard

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// overview is the first page.
type overview struct {
	Many             bool // more waits than is read
	Jobs, FlowsInAll int64
	Started, PutBack rateText
	Counted          bool // there are counts of this process
	Stats            worker.Stats
	Load             view.Load
	Alive, Differing int
	Rows             []keyRow
	Flows            []flowRow
	More             int
	LineAt           time.Time
}

type rateText struct {
	Known      bool
	Now, Spark string
}

// keyRow is one scope key with its limits; Problem says why none are known.
type keyRow struct {
	Scope, Key string
	Uses       []useRow
	Waiting    int64 // jobs
	Spark      string
	Problem    string
}

// flowRow is jobs that wait: whose they are, and for what.
type flowRow struct {
	instantNow
	Flow  scopeKey
	Jobs  int64
	Since time.Time
	For   scopeKey
	Why   string
	Until time.Time
}

func overviewOf(b *board, counted bool) overview {
	o := overview{
		Many: b.line.many, Jobs: b.line.flows.Jobs, FlowsInAll: int64(b.line.flows.Flows),
		Started: b.started.text(), PutBack: b.putBack.text(), Counted: counted, Stats: b.stats,
		Load: b.process.load, Flows: b.flowRows(b.line.flows), LineAt: b.line.at,
	}
	o.Alive, o.Differing = b.process.differing()
	o.More = b.line.flows.InAll - len(o.Flows)
	for _, key := range b.rows {
		o.Rows = append(o.Rows, b.keyRow(key))
	}
	return o
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
		row.Uses, row.Spark = useRows(s.usage), spark(s.full, 1)
	}
	return row
}

// flowRows say who waits, and for what as far as that is known.
func (b *board) flowRows(w view.Waiting) []flowRow {
	rows := make([]flowRow, len(w.Rows))
	for i, r := range w.Rows {
		rows[i] = flowRow{instantNow: instantNow{b.now}, Jobs: r.Jobs, Since: r.Since, For: scopeKey{r.Scope, r.Key}}
		if fair := b.process.fair(); fair != "" && fair != throttle.Global && r.Flow != "" {
			rows[i].Flow = scopeKey{fair, r.Flow}
		}
		if s := b.keys[rows[i].For]; s != nil && s.err == nil {
			rows[i].Why, rows[i].Until = view.Why(s.usage)
		}
	}
	return rows
}
