package crawl

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Connections is how many requests may be under way to one address, and how many times
// longer than an answer took its place is left alone then, at most for a lease.
type Connections struct {
	Limit    throttle.Limit
	Cooldown float64
}

// Check counts by a record how many were under way to an address at once. What is left
// alone counts as if it were.
func (c Connections) Check(accesses []site.Access) check.AtOnce {
	spans := make([]check.Span, 0, len(accesses))
	for _, a := range accesses {
		took := a.Held.Sub(a.At)
		alone := min(time.Duration(c.Cooldown*float64(took)), throttle.DefaultLease)
		spans = append(spans, check.Span{At: a.At.UnixMicro(), End: a.Held.Add(alone).UnixMicro(), Units: 1, Key: a.Addr})
	}
	return check.Running(spans, c.Limit)
}
