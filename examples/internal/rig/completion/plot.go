package completion

import (
	"math"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/plot"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// maxRows bounds the rows of the picture: one for all, one for each kind of prompt, and one
// for each customer.
const maxRows = 9

// writePlot draws the run into a file, as PNG or SVG by its name: the requests and the
// tokens of each second beside the limits, shaded where the provider served less; then, for
// each kind, how many prompts had arrived and were answered; then each customer.
func writePlot(path string, r result) error {
	end := 1.0
	for _, one := range r.requests {
		end = max(end, math.Ceil(r.since(one.At)+0.001))
	}
	less := r.incidents(end)
	requests, tokens := r.moments("")
	rows := [][]plot.Graph{{
		plot.Rates{Title: "requests served per second", Unit: unitRequests, Moments: requests,
			Limits: rig.LimitsOf(r.scopes, ScopeRequests), Pauses: less},
		plot.Rates{Title: "tokens served per second", Unit: unitTokens, Moments: tokens,
			Limits: rig.LimitsOf(r.scopes, ScopeTokens), Pauses: less},
	}, {
		r.flow("interactive prompts arrived and asked", prompt.Interactive),
		r.flow("batch prompts arrived and asked", prompt.Batch),
	}}
	for _, customer := range r.customers() {
		if len(rows) == maxRows {
			break
		}
		requests, tokens := r.moments(customer)
		rows = append(rows, []plot.Graph{
			plot.Rates{Title: customer + ": requests per second", Unit: unitRequests, Moments: requests,
				Limits: []throttle.Limit{}, Pauses: less},
			plot.Rates{Title: customer + ": tokens per second", Unit: unitTokens, Moments: tokens,
				Limits: []throttle.Limit{}, Pauses: less},
		})
	}
	return plot.Write(path, rows, end)
}

// incidents returns the times in which less was served than at the beginning.
func (r result) incidents(end float64) []plot.Pause {
	var less []plot.Pause
	for i, one := range r.served {
		if one.limits.Tokens >= r.served[0].limits.Tokens || r.since(one.from) > end {
			continue
		}
		until := end
		if i+1 < len(r.served) {
			until = r.since(r.served[i+1].from)
		}
		less = append(less, plot.Pause{From: r.since(one.from), Until: until})
	}
	return less
}

// moments returns the requests and the tokens that were served to a customer, or to all.
func (r result) moments(customer string) (requests, tokens []plot.Moment) {
	for _, one := range r.answers() {
		if customer == "" || one.Customer == customer {
			at := r.since(one.At)
			requests = append(requests, plot.Moment{At: at, Units: 1})
			tokens = append(tokens, plot.Moment{At: at, Units: float64(one.Tokens())})
		}
	}
	return requests, tokens
}

// flow returns the graph of how the prompts of a kind arrived and were served.
func (r result) flow(title string, kind prompt.Kind) plot.Flow {
	f := plot.Flow{Title: title}
	known := r.byID()
	for _, o := range r.outcomes {
		if o.prompt.Kind == kind && !o.arrived.IsZero() {
			f.Arrived = append(f.Arrived, plot.Moment{At: max(0, r.since(o.arrived)), Units: 1})
		}
	}
	for _, one := range r.answers() {
		if p := known[one.ID]; p != nil && p.Kind == kind {
			f.Started = append(f.Started, plot.Moment{At: r.since(one.At), Units: 1})
		}
	}
	return f
}

// customers returns the customers of the prompts, in the order of their first prompts.
func (r result) customers() []string {
	var names []string
	known := make(map[string]bool)
	for _, o := range r.outcomes {
		if !known[o.prompt.Customer] {
			known[o.prompt.Customer] = true
			names = append(names, o.prompt.Customer)
		}
	}
	return names
}
