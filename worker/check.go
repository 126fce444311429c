package worker

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// note is the severity of a finding that does no harm.
const note = "note"

// checkAgain is how soon, at the earliest, Redis is checked again if it could not be asked.
const checkAgain = 2 * time.Second

// check checks whether Redis is fit for the throttle, and logs the findings. It returns false if
// Redis could not be asked: run then calls it again. Stop ends it. The puller pulls nothing
// meanwhile.
func (p *puller) check(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.done.Go(func() {
		select {
		case <-p.shaper.stopped:
			cancel()
		case <-ctx.Done():
		}
	})
	findings, err := p.shaper.looks.Check(ctx)
	if errors.Is(err, throttle.ErrUnavailable) || ctx.Err() != nil {
		p.shaper.log.Debug("worker: Redis cannot be checked, it is tried again", zap.Error(err))
		return false
	}
	for _, f := range findings {
		fields := []zap.Field{zap.String("about", f.What), zap.String("found", f.Text), zap.String("remedy", f.Remedy)}
		if f.Severity == note {
			p.shaper.log.Debug("worker: a note about Redis", fields...)
			continue
		}
		p.shaper.log.Warn("worker: Redis or its client is not as it should be", fields...)
	}
	if err != nil {
		p.shaper.log.Error("worker: Redis, as it is, cannot decide", zap.Error(err))
	}
	return true
}
