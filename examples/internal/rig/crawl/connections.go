package crawl

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Connections says how many requests may be under way to one address. After each answer its
// place stays occupied for Cooldown times as long as the answer took, for a lease at most.
type Connections struct {
	Limit    throttle.Limit
	Cooldown float64
}

// Check counts, by a record, how many requests were under way to an address at once. A place
// counts as long as it stays occupied.
func (c Connections) Check(accesses []site.Access) check.AtOnce {
	spans := make([]check.Span, 0, len(accesses))
	for _, a := range accesses {
		took := a.Held.Sub(a.At)
		alone := min(time.Duration(c.Cooldown*float64(took)), throttle.DefaultLease)
		spans = append(spans, check.Span{At: a.At.UnixMicro(), End: a.Held.Add(alone).UnixMicro(), Units: 1, Key: a.Addr})
	}
	return check.Running(spans, c.Limit)
}
