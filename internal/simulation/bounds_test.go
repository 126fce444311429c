package simulation_test

import (
	"context"
	"errors"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// drawBounds draws bounds for the lengths of lines. In a calm world every task is then planned, and none comes again as
// another job, which would not be refused.
func (p *plan) drawBounds(d dice) {
	p.bounded = true
	for i := range p.scopes {
		p.scopes[i].MaxWaiting = one(d, throttle.Length{Jobs: 1 + d.Int64N(20)}, throttle.Length{Units: 5 + d.Int64N(60)})
	}
	for _, j := range p.jobs {
		if p.kind == calm {
			j.how, j.outcomes = planned, nil
		}
	}
}

// take notes which of the planned jobs were refused since a line was full. No other job has an error.
func (w *world) take(jobs []*job, plan worker.Plan) {
	for i, task := range plan.Tasks {
		if full := new(throttle.LineFullError); !errors.As(task.Err, &full) {
			w.must("Enqueue", task.Err)
			continue
		}
		w.mu.Lock()
		w.refused[jobs[i].id] = true
		w.mu.Unlock()
	}
}

// checkBounds compares the lengths in Redis with the bounds, after a script of a calm world.
func (a *account) checkBounds() {
	reply, err := a.world.redis.do(encode("HGETALL", "thr:{"+a.world.name+"}:4:waiting"))
	a.world.must("HGETALL", err)
	for values := decode(reply); len(values) > 0; values = values[2:] {
		name, length := text(values[0]), strings.Fields(text(values[1]))
		if name == "*" {
			continue
		}
		scope, _ := a.scopeOf(name)
		jobs, units, most := number(length[0]), number(length[1]), scope.MaxWaiting
		if most.Jobs > 0 && jobs > most.Jobs || most.Units > 0 && units > most.Units {
			a.world.errorf("the line of %s has %d jobs of %d units, want at most %s", name, jobs, units, most)
		}
	}
}

// checkLengths checks that where lines have a bound, all jobs that Redis knows in the end are counted, and that a calm
// world has none.
func (w *world) checkLengths() {
	ctx, client, prefix := context.Background(), w.operator.wire.client, "thr:{"+w.name+"}:4:"
	counted, known := client.HGet(ctx, prefix+"waiting", "*").Val(), client.HLen(ctx, prefix+"jobs").Val()
	jobs, _, _ := strings.Cut(counted, " ")
	if w.plan.bounded && (number(jobs) != known || w.plan.kind == calm && known > 0) {
		w.errorf("%q jobs are counted in the end, and %d are known", counted, known)
	}
}
