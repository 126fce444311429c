package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// MissingEdges are edges of the periods of a calendar, or of hours, that a script needs and Redis does not have.
type MissingEdges struct {
	Calendar    string // as in the span of a limit
	From, Until int64
}

// edgesMissing begins the error of a script that needs edges.
const edgesMissing = "EDGES "

// ReadMissingEdges reads the error of a script; false for other errors.
func ReadMissingEdges(text string) (m MissingEdges, is bool) {
	_, rest, is := strings.Cut(text, edgesMissing)
	parts := strings.Fields(rest)
	if !is || len(parts) < 3 {
		return MissingEdges{}, false
	}
	v := Values{rest: parts[:3]}
	m = MissingEdges{Calendar: v.Text(), From: v.Natural(), Until: v.Natural()}
	return m, v.Err() == nil
}

// edgesAhead is how many periods after the last instant have edges: the more, the more seldom a script needs edges.
// edgesBefore is how many before the first have some: Redis may have edges of a process whose zone data differ, by
// which a period has not begun that has begun here.
const (
	edgesAhead  = 16
	edgesBefore = 2
)

// Arguments returns the arguments of edges.lua. The error is of a calendar that this process does not know.
func (m MissingEdges) Arguments() ([]string, error) {
	of, err := line.EdgesOf(m.Calendar)
	if err != nil {
		return nil, err
	}
	first := of.Period(time.UnixMicro(m.From)) - edgesBefore
	last := of.Through(of.Period(time.UnixMicro(m.Until)) + edgesAhead)
	var edges strings.Builder
	for period := first; period <= last; period++ {
		fmt.Fprintf(&edges, "%0*d", digits, of.Edge(period).UnixMicro())
	}
	return []string{m.Calendar, integer(first), edges.String()}, nil
}
