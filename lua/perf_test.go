package lua_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

const peer = `
redis.replicate_commands()
local rate_limit_key = KEYS[1]
local burst = ARGV[1]
local rate = ARGV[2]
local period = ARGV[3]
local cost = tonumber(ARGV[4])
local emission_interval = period / rate
local increment = emission_interval * cost
local burst_offset = emission_interval * burst
local jan_1_2017 = 1483228800
local now = redis.call("TIME")
now = (now[1] - jan_1_2017) + (now[2] / 1000000)
local tat = redis.call("GET", rate_limit_key)
if not tat then tat = now else tat = tonumber(tat) end
tat = math.max(tat, now)
local new_tat = tat + increment
local allow_at = new_tat - burst_offset
local diff = now - allow_at
local remaining = diff / emission_interval
if remaining < 0 then
  local reset_after = tat - now
  local retry_after = diff * -1
  return {0, 0, tostring(retry_after), tostring(reset_after)}
end
local reset_after = new_tat - now
if reset_after > 0 then
  redis.call("SET", rate_limit_key, new_tat, "EX", math.ceil(reset_after))
end
local retry_after = -1
return {cost, remaining, tostring(retry_after), tostring(reset_after)}
`

func TestPerf(t *testing.T) {
	if os.Getenv("PERF") == "" {
		t.Skip()
	}
	c := redistest.Start(t).Client(t)
	ctx := context.Background()
	stat := func() (calls, usec float64) {
		text := c.Info(ctx, "commandstats").Val()
		var us, per float64
		var n float64
		for _, l := range splitLines(text) {
			if _, err := fmt.Sscanf(l, "cmdstat_evalsha:calls=%f,usec=%f,usec_per_call=%f", &n, &us, &per); err == nil {
				return n, us
			}
		}
		return 0, 0
	}
	p := redis.NewScript(peer)
	r := redis.NewScript(lua.Reserve)
	p.Load(ctx, c)
	r.Load(ctx, c)
	header := []any{"", "1000000 5000000 2592000000", "global=e:1000000/60000000/600000;tenant=e:1000/60000000/600000;"}
	asking := 0
	batch := func(n int) func(i int) {
		return func(i int) {
			asking++
			args := append([]any{}, header...)
			args = append(args, "me", asking)
			for k := range n {
				tn := (i*n + k) * 7919 % 10000
				args = append(args, fmt.Sprintf("job-%d-%d", i, k), fmt.Sprintf("t%d|global:,tenant:t%d", tn, tn), "1", "1200000 -1 0 1")
			}
			if err := r.Run(ctx, c, []string{"thr:{p}:4:control"}, args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	twice := func(i int) {
		p.Run(ctx, c, []string{"rate:global"}, 1000000, 1000000, 60, 1)
		p.Run(ctx, c, []string{fmt.Sprintf("rate:t%d", i*7919%10000)}, 1000, 1000, 60, 1)
	}
	measure := func(name string, jobs int, f func(int)) {
		for i := range 2000 {
			f(i)
		}
		_, u0 := stat()
		began := time.Now()
		const n = 10000
		for i := range n {
			f(i)
		}
		took := time.Since(began)
		_, u1 := stat()
		t.Logf("%-20s script %.1f us per job, wall %.1f us", name, (u1-u0)/n/float64(jobs), float64(took.Microseconds())/n/float64(jobs))
	}
	for range 3 {
		measure("redis_rate twice", 1, twice)
		measure("reserve 1", 1, batch(1))
		measure("reserve 16", 16, batch(16))
	}
}

func splitLines(s string) []string {
	var out []string
	for len(s) > 0 {
		i := 0
		for i < len(s) && s[i] != '\n' {
			i++
		}
		out = append(out, s[:i])
		s = s[min(i+1, len(s)):]
	}
	return out
}
