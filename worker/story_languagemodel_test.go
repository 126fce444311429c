package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// promptOf returns the job of a prompt: one request, and the tokens in a header of its task.
func promptOf(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	h := task.Headers()
	tokens, err := strconv.ParseInt(h["tokens"], 10, 64)
	if err != nil {
		return throttle.Job{}, err
	}
	priority, err := strconv.Atoi(h["priority"])
	return throttle.Job{
		Weight: 1, Costs: map[string]int64{"tokens": tokens}, Priority: priority,
		Keys: map[string]string{"requests": "large", "tokens": "large"},
	}, err
}

// prompts are the tasks of a model, by ID: when they came, and when the model served them.
type prompts struct {
	*world
	model   *provider
	came    map[string]time.Time
	served  map[string]time.Time
	urgents []string // in order of arrival
}

// bring enqueues a prompt.
func (p *prompts) bring(tokens int64, priority int) {
	p.mu.Lock()
	id := fmt.Sprintf("%d-%05d", priority, len(p.came))
	p.came[id] = time.Now()
	if priority == 0 {
		p.urgents = append(p.urgents, id)
	}
	p.mu.Unlock()
	h := map[string]string{"tokens": fmt.Sprint(tokens), "priority": fmt.Sprint(priority)}
	p.send(worker.NewTask("prompt", nil, h, asynq.TaskID(id)))
}

// complete is the handler: it asks the model, and reports the answer.
func (p *prompts) complete(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	job, err := promptOf(ctx, task)
	if err != nil {
		return err
	}
	tokens := job.Costs["tokens"]
	served, limit, _ := p.model.asked(tokens)
	said := throttle.ReportedLimit{Window: p.model.window, Units: limit, Remaining: -1}
	report := throttle.Report{Refused: !served, Limits: []throttle.ReportedLimit{said}}
	if _, err := worker.Report(ctx, "tokens", report); err != nil {
		return err
	}
	if !served {
		return worker.AskedToWait("tokens", time.Second, errors.New("429"))
	}
	p.mu.Lock()
	p.served[id] = time.Now()
	p.mu.Unlock()
	time.Sleep(time.Duration(tokens) * time.Millisecond / 2)
	return nil
}

// waits returns how long each urgent prompt has waited, and how many urgent prompts were waiting when it came.
func (p *prompts) waits() (waits []time.Duration, before []int) {
	for i, id := range p.urgents {
		ahead := 0
		for _, other := range p.urgents[:i] {
			if p.served[other].After(p.came[id]) {
				ahead++
			}
		}
		waits, before = append(waits, p.served[id].Sub(p.came[id])), append(before, ahead)
	}
	return waits, before
}

// TestModelServesHalf: 250 prompts of 100 to 4,000 tokens wait for a model of 20,000 tokens in 10 s, paced
// by a quarter, and urgent ones come one by one; for 30 s the model serves half. A prompt is put back
// once, also a light one that would have room itself while it waits behind heavy ones; a few are put
// back again. An urgent prompt waits for the urgent ones before it, for what was booked in the
// lookahead, and for two of the backlog: one that has a claim, and one that is the backlog's tenth.
// Each of these, and the prompt itself, takes a quarter of the window or, while half is served,
// 4 s for its 4,000 tokens of 10,000. The model refuses the first prompt after it has begun to serve half,
// and the few that had been granted by then. A paced quarter of 5,000 tokens is not filled by prompts
// of 2,000 and 4,000: some four fifths of what is served is used.
func TestModelServesHalf(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	for seed := range longtest.Of[uint64](1, 5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, modelScopes, func(t *testing.T, w *world) { modelServesHalf(t, w, seed) })
		})
	}
}

const modelWindow = 10 * time.Second

var modelScopes = []throttle.Scope{
	{Name: "requests", Margin: 100 * time.Millisecond, Floor: 0.1, Limits: []throttle.Limit{
		throttle.Per(60, modelWindow),
	}},
	{Name: "tokens", Margin: 100 * time.Millisecond, Floor: 0.1, Limits: []throttle.Limit{
		throttle.Per(20_000, modelWindow), throttle.Per(5000, modelWindow/4),
	}},
}

func modelServesHalf(t *testing.T, w *world, seed uint64) {
	began := time.Now()
	model := &provider{window: modelWindow, serves: func(at time.Time) int64 {
		if since := at.Sub(began); since > 40*time.Second && since < 70*time.Second {
			return 10_000
		}
		return 20_000
	}}
	w.shaper = w.newShaperOf(promptOf, nil)
	p := &prompts{world: w, model: model, came: make(map[string]time.Time), served: make(map[string]time.Time)}
	w.start(w.client, w.shaper.Configure(asynq.Config{Concurrency: 32}), w.shaper.Wrap(asynq.HandlerFunc(p.complete)))
	r := rand.New(rand.NewPCG(1, seed))
	tokens := func() int64 { return 100 + r.Int64N(3901) }
	for range 250 {
		p.bring(tokens(), 1)
	}
	for time.Since(began) < 2*time.Minute {
		p.bring(tokens(), 0)
		time.Sleep(time.Duration(r.ExpFloat64() * float64(5*time.Second)))
	}
	w.until("all prompts are served", 15*time.Minute, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(p.served) == len(p.came)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	waits, before := p.waits()
	const each = 4 * time.Second
	backlog := longtest.Of(5, 3)
	for i, wait := range waits {
		if most := time.Duration(before[i]+backlog)*each + time.Second; wait > most {
			t.Errorf("%s waited %s behind %d others, want %s at most", p.urgents[i], wait, before[i], most)
		}
	}
	used := func(from, until time.Duration) float64 { return model.utilisation(began.Add(from), began.Add(until)) }
	whole, half, again := used(5*time.Second, 35*time.Second), used(45*time.Second, 65*time.Second),
		used(80*time.Second, 2*time.Minute)
	putBack := float64(w.shaper.Stats().PutBack) / float64(len(p.came))
	t.Logf("%d prompts, %d refused, put back %.2f; %.2f, %.2f and %.2f of what is served used; %d urgent ones waited "+
		"%s at the median, p99 %s", len(p.came), len(model.refused), putBack, whole, half, again, len(waits),
		percentile(waits, 0.5), percentile(waits, 0.99))
	if least := longtest.Of(0.6, 0.7); len(model.refused) > 6 || putBack > 1.2 || min(whole, half, again) < least {
		t.Errorf("want 6 refused at most, 1.2 put back, and %v used", least)
	}
}
