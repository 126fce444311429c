package throttle

import (
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// SetNow lets a test set the time that scripts read. With nil they read Redis' clock again.
func (t *Throttle) SetNow(now func() time.Time) { t.now = now }

// Encode returns a user's value as a key has it.
var Encode = wire.Encode

// AwaitPublished waits until this process has finished publishing.
func (t *Throttle) AwaitPublished() { t.sign.publishing.Wait() }

// TakeSteps sets how many steps one call of a script may take.
func (t *Throttle) TakeSteps(n int) {
	t.header[0] = t.header[0][:strings.LastIndexByte(t.header[0], ' ')+1] + strconv.Itoa(n)
}
