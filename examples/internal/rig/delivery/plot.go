package delivery

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/plot"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The picture has a row for all mails and one for each tenant, up to maxRows
// in all: on the left what arrived and what started, on the right how much
// started in each second against the limits.
const maxRows = 9

// row is what one row of the picture shows.
type row struct {
	title     string
	limits    []throttle.Limit
	arrivals  []plot.Moment // in order
	starts    []plot.Moment // in order
	firstCome []plot.Moment // the starts under first come, first served, in order; empty if not known
	raised    []plot.Moment // the limit that is raised, in units per second; then limits are not drawn
}

// writePlot draws the run into a file, as PNG or SVG by its name.
func writePlot(path string, r result) error {
	end := 1.0
	for _, starts := range [][]grant{r.granted, r.firstCome} {
		if n := len(starts); n > 0 {
			end = max(end, math.Ceil(r.since(starts[n-1].start)+0.001))
		}
	}
	var graphs [][]plot.Graph
	for _, one := range rowsOf(r) {
		if zone, follows := zoneOf(r.law.Scopes); follows && end > longRun {
			graphs = append(graphs, daysOf(r, one, zone, end))
			continue
		}
		graphs = append(graphs, []plot.Graph{one.flow(time.Time{}),
			plot.Rates{Title: one.title + ": units started per second", Unit: "units", Moments: one.starts,
				Limits: one.limits, Growing: one.raised},
		})
	}
	return plot.Write(path, graphs, end)
}

// flow shows what arrived and what started: by the clock if began is set, else by seconds.
func (one row) flow(began time.Time) plot.Graph {
	return plot.Flow{Title: one.title + ": units arrived and started", Arrived: one.arrivals, Started: one.starts,
		Otherwise: one.firstCome, Rule: "first come, first served", Began: began}
}

// rowsOf gathers the rows: all mails, then the tenants by name.
func rowsOf(r result) []row {
	all := row{title: "all tenants", limits: rig.LimitsOf(r.law.Scopes, throttle.Global)}
	tenants := make(map[string]*row)
	for _, m := range r.campaign.Mails {
		if tenants[m.Tenant] == nil {
			tenants[m.Tenant] = &row{title: m.Tenant, limits: rig.LimitsOf(r.law.Scopes, campaign.ScopeTenant),
				raised: raisedLine(r, m.Tenant)}
		}
		if arrived := r.outcomes[m.ID].arrived; !arrived.IsZero() {
			one := plot.Moment{At: max(0, r.since(arrived)), Units: float64(m.Units())}
			all.arrivals = append(all.arrivals, one)
			tenants[m.Tenant].arrivals = append(tenants[m.Tenant].arrivals, one)
		}
	}
	for _, g := range r.granted {
		one := plot.Moment{At: r.since(g.start), Units: float64(g.mail.Units())}
		all.starts = append(all.starts, one)
		tenants[g.mail.Tenant].starts = append(tenants[g.mail.Tenant].starts, one)
	}
	for _, g := range r.firstCome {
		one := plot.Moment{At: r.since(g.start), Units: float64(g.mail.Units())}
		tenants[g.mail.Tenant].firstCome = append(tenants[g.mail.Tenant].firstCome, one)
	}
	rows := []row{all}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if len(rows) == maxRows {
			break
		}
		rows = append(rows, *tenants[name])
	}
	return rows
}

// raisedLine draws the limit of a tenant while it is raised, until the tenant has the limit of all tenants.
func raisedLine(r result, tenant string) []plot.Moment {
	var line []plot.Moment
	level := 0.0
	for _, c := range r.law.Changes {
		if c.Scope != campaign.ScopeTenant || c.Key != tenant {
			continue
		}
		at := max(0, r.since(c.At))
		if len(line) > 0 {
			line = append(line, plot.Moment{At: at, Units: level})
		}
		if len(c.Limits) == 0 {
			return line
		}
		level = float64(c.Limits[0].Units) / c.Limits[0].Window.Seconds()
		line = append(line, plot.Moment{At: at, Units: level})
	}
	if len(line) > 0 {
		line = append(line, plot.Moment{At: max(0, r.since(r.end())), Units: level})
	}
	return line
}
