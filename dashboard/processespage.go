package dashboard

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// processesPage shows whether all processes have the same configuration.
type processesPage struct {
	Alive, Differing int
	All              []processRow
	Scopes           []throttle.Scope
}

type processRow struct {
	instantNow
	Name        string
	Alive       bool
	Since, Seen time.Time
	Differences []string
}

func processesOf(b *board) processesPage {
	p := processesPage{Scopes: b.process.scopes()}
	p.Alive, p.Differing = view.Differing(b.process.all)
	for _, one := range b.process.all {
		row := processRow{instantNow: instantNow{b.now}, Name: one.String(), Alive: one.Alive, Since: one.Since,
			Seen: one.Seen}
		row.Differences = b.process.all[0].Differences(one)
		p.All = append(p.All, row)
	}
	return p
}
