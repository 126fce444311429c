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

// checkAgain is how soon Redis is checked again that could not be asked.
const checkAgain = 2 * time.Second

// check has the throttle look whether Redis is fit for it, and logs what it found. It
// returns false where Redis could not be asked: there a later call may tell. A Stop ends
// it. The line is not pulled meanwhile.
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
