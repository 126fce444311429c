package throttle

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// SetNow lets a test set the time that scripts read. With nil they read Redis' clock again.
func (t *Throttle) SetNow(now func() time.Time) { t.now = now }

// Advance returns the units of the advance that an answer brought, and when the first of their sub-windows ends.
func (a Answer) Advance() (units int64, ends time.Time) { return a.advance.units, a.advance.ends }

// Encode returns a user's value as a key has it.
var Encode = wire.Encode

// AwaitPublished waits until this process has finished publishing.
func (t *Throttle) AwaitPublished() { t.sign.publishing.Wait() }

// TakeSteps sets how many steps one call of a script may take.
func (t *Throttle) TakeSteps(n int) {
	t.header[0] = t.header[0][:strings.LastIndexByte(t.header[0], ' ')+1] + strconv.Itoa(n)
}

// KeepEdges has Redis keep the edges of quotas and hours from one instant until another.
func (t *Throttle) KeepEdges(ctx context.Context, from, until time.Time, limits ...Limit) error {
	for _, l := range limits {
		calendar := strings.TrimLeft(l.span(0).String(), "hz0123456789")
		missing := wire.MissingEdges{Calendar: calendar, From: from.UnixMicro(), Until: until.UnixMicro()}
		if err := t.redis.storeEdges(ctx, missing, t.arguments(nil)); err != nil {
			return err
		}
	}
	return nil
}
