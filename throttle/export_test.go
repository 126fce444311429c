package throttle

import (
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// SetNow lets a test say the time to the scripts. nil gives it back to Redis.
func (t *Throttle) SetNow(now func() time.Time) { t.now = now }

// Encode is how a user's value stands in a key.
var Encode = wire.Encode

// AwaitPublished returns when this process has published what it is about to.
func (t *Throttle) AwaitPublished() { t.sign.publishing.Wait() }

// TakeSteps has one call of a script take so many steps.
func (t *Throttle) TakeSteps(n int) {
	t.header[0] = t.header[0][:strings.LastIndexByte(t.header[0], ' ')+1] + strconv.Itoa(n)
}
