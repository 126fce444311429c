package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/seam"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// attachedTimeout bounds each call of an attached Inspector, which may be far away from Redis.
const attachedTimeout = 2 * time.Second

// AttachError is why Attach found no throttle.
type AttachError struct {
	Throttle string // its name
	Reason   string
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("throttle: %s cannot be attached to: %s", e.Throttle, e.Reason)
}

// newest returns the first process that has this state version.
func newest(name string, all []throttle.Process) (throttle.Process, error) {
	for _, p := range all {
		if p.State == wire.StateVersion {
			return p, nil
		}
	}
	reason := "no process has published it within a day"
	if len(all) > 0 {
		reason = "its processes are of state version " + all[0].State + ", this is " + wire.StateVersion
	}
	return throttle.Process{}, &AttachError{Throttle: name, Reason: reason}
}

// Attach returns an Inspector of the throttle called name, made from the configuration that its
// processes have published in Redis.
//
// If processes are configured differently, as during a rollout, Attach takes the configuration of
// the newest live process or, if none lives, of the newest one. The Inspector does not follow later
// publications: attach again from time to time. Shares that come from throttle.Options.Share are known only
// for the flows that wait now. The Inspector writes no log.
//
// The error is an *AttachError if no process has published a configuration that this version can read, a
// *throttle.OptionError for the name or the client, or else an error of Usage. Attach blocks for two round trips.
func Attach(ctx context.Context, name string, client redis.Scripter) (*Inspector, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	options := throttle.Options{Timeout: attachedTimeout, BreakAfter: -1, Logger: zap.NewNop()}
	asking, err := throttle.New(name, client, []throttle.Scope{{Name: throttle.Global}}, &options)
	if err != nil {
		return nil, err
	}
	asking.Inside(seam.Key{}).Watch(nil)
	unknown := New(asking)
	all, err := unknown.Processes(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newest(name, all)
	if err != nil {
		return nil, err
	}
	options.Lookahead, options.Grace, options.FairScope, options.Shares = p.Lookahead, p.Grace, p.FairScope, p.Shares
	options.FairByTime, options.PriorityFloor = p.FairByTime, p.PriorityFloor
	if options.FairScope == "" {
		options.FairScope = throttle.Global
	}
	th, err := throttle.New(name, client, p.Scopes, &options)
	if err != nil {
		return nil, &AttachError{Throttle: name,
			Reason: "what " + p.String() + " has published is no configuration: " + err.Error()}
	}
	scores, err := unknown.scores(ctx, unknown.prefix+"shares")
	if err != nil {
		return nil, err
	}
	shares := make(map[string]int)
	for flow, score := range scores {
		if share := int64(score) % shareSecond; share >= 1 && share <= maxShare {
			shares[flow] = int(share)
		}
	}
	th.Inside(seam.Key{}).Watch(shares)
	return New(th), nil
}

const (
	// maxShare is the largest share of a flow.
	maxShare = 1_000_000
	// shareSecond is the value of a second in the score of a share in Redis; the rest of the score is the share.
	shareSecond = 1 << 20
)
