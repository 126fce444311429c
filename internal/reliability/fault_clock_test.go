package reliability_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

// steppedClock gives the scripts a time that differs from Redis' clock. libfaketime does not work with redis-server,
// but each script takes the time in its first argument.
type steppedClock struct{ offset atomic.Int64 } // in nanoseconds

// DialHook changes nothing.
func (c *steppedClock) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing: no script is called in a pipeline here.
func (c *steppedClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook puts the time into each call of a script.
func (c *steppedClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		args := command.Args()
		if strings.EqualFold(command.Name(), "evalsha") {
			keys, _ := args[2].(int)
			now := time.Now().Add(time.Duration(c.offset.Load()))
			args[3+keys] = strconv.FormatInt(now.UnixMicro(), 10)
		}
		return next(ctx, command)
	}
}

// TestClockSteps_F23_F24 lets Redis' clock step, and checks the starts on a clock that does
// not step. A small step back, which the scripts wait out, costs time and breaks no limit. A
// large step back, which they must follow, breaks none either. A step forward is like a loss
// of data.
func TestClockSteps_F23_F24(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		cases, done string
		step        time.Duration
		believed    bool
	}{
		"F23 back by 3 s":  {"F23", "back by 3 s, which is waited for", -3 * time.Second, false},
		"F23 back by 40 s": {"F23", "back by 40 s, which is believed", -40 * time.Second, true},
		"F24 on by 1 h":    {"F24", "on by 1 h", time.Hour, true},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "F24 on by 1 h" {
				longtest.Only(t, ofItsClass)
			}
			server := redistest.Start(t)
			clock := &steppedClock{}
			hooked := func() redis.UniversalClient {
				client := clientOf(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolSize: 64})
				client.AddHook(clock)
				return client
			}
			d := apartBy(t, server, quotas, hooked)
			step := func() { clock.offset.Store(int64(row.step)) }
			measured := reliability.Row{Cases: row.cases, Done: row.done, Servers: "the clock that the scripts are told"}
			if row.believed {
				d.really = func(s start) start {
					if apart := s.Begun.Sub(s.Decided).Abs(); apart > row.step.Abs()/2 {
						s.At, s.Decided = s.At.Add(-row.step), s.Decided.Add(-row.step)
					}
					return s
				}
				d.finish(d.lose(step), measured, allowance{loses: row.step > 0, stepped: true})
				return
			}
			// The fault is over when the clock is back at its old time. Until then a booked job gets the same answer
			// again and again: its slot is up to a lookahead away.
			d.finish(d.strike(step, row.step.Abs(), func() {}), measured,
				allowance{within: time.Second + lookahead, stepped: true})
		})
	}
}
