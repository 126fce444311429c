package crawl

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/plot"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The picture has a row for all hosts and one for each, up to maxRows in all: on
// the left the requests in each second, on the right the kilobytes, both against
// the limits; shaded are the times for which a host asked to be left alone.
const maxRows = 12

// row is what one row of the picture shows.
type row struct {
	title               string
	requests, kilobytes []plot.Moment
	pauses              []plot.Pause
	requestLimits       []throttle.Limit
	kilobyteLimits      []throttle.Limit
}

// writePlot draws the run into a file, as PNG or SVG by its name.
func writePlot(path string, r Result) error {
	end := 1.0
	for _, a := range r.Accesses {
		end = max(end, math.Ceil(r.since(a.At)+0.001))
	}
	var graphs [][]plot.Graph
	for _, one := range rowsOf(r) {
		graphs = append(graphs, []plot.Graph{
			plot.Rates{Title: one.title + ": requests per second", Unit: unitRequests, Moments: one.requests,
				Limits: one.requestLimits, Pauses: one.pauses},
			plot.Rates{Title: one.title + ": kilobytes per second", Unit: unitKilobytes, Moments: one.kilobytes,
				Limits: one.kilobyteLimits, Pauses: one.pauses},
		})
	}
	return plot.Write(path, graphs, end)
}

// rowsOf gathers the rows: all hosts, then those that were asked most, by name.
func rowsOf(r Result) []row {
	all := row{title: "all hosts", requestLimits: rig.LimitsOf(r.Requests, throttle.Global),
		kilobyteLimits: rig.LimitsOf(r.kilobytes, throttle.Global)}
	hosts := make(map[string]*row)
	for _, a := range r.Accesses {
		one := hosts[a.Host]
		if one == nil {
			one = &row{title: a.Host, requestLimits: rig.LimitsOf(r.Requests, ScopeHost),
				kilobyteLimits: rig.LimitsOf(r.kilobytes, ScopeHost)}
			if delay := r.delays[a.Host]; delay > 0 {
				one.requestLimits = append([]throttle.Limit{throttle.Per(1, delay)}, one.requestLimits...)
			}
			hosts[a.Host] = one
		}
		request, kb := plot.Moment{At: r.since(a.At), Units: 1},
			plot.Moment{At: r.since(a.At), Units: float64(a.Bytes) / fetch.Kilobyte}
		all.requests, all.kilobytes = append(all.requests, request), append(all.kilobytes, kb)
		one.requests, one.kilobytes = append(one.requests, request), append(one.kilobytes, kb)
		if !a.Until.IsZero() {
			one.pauses = append(one.pauses, plot.Pause{From: r.since(a.End), Until: r.since(a.Until)})
		}
	}
	rows := make([]row, 0, len(hosts))
	for _, one := range hosts {
		rows = append(rows, *one)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(len(b.requests), len(a.requests)), strings.Compare(a.title, b.title))
	})
	rows = rows[:min(len(rows), maxRows-1)]
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.title, b.title) })
	return append([]row{all}, rows...)
}
