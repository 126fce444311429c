package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// foresight is a forecast of jobs, and what became of it.
type foresight struct {
	began  time.Time // when it was made
	last   time.Time // the expected start of the last job
	starts []throttletest.Start
}

// foretold lets jobs of four tenants arrive, whose weights are 1 up to the heaviest in turn, and forecasts all but the
// first 30. Each starts within two seconds of its forecast, or a hundredth of its wait; all start within a time, and
// within the limits.
func foretold(t *testing.T, scopes []throttle.Scope, n, heaviest int, within time.Duration) foresight {
	t.Helper()
	st := newStage(t, miniClient(t), scopes, throttle.Options{Lookahead: time.Second})
	jobs := make([]throttle.Job, n)
	for i := range jobs {
		jobs[i] = throttle.Job{ID: fmt.Sprint("j", i), Weight: int64(1 + i%heaviest), Keys: of(fmt.Sprint("t", i%4))}
	}
	for _, job := range jobs[:30] {
		st.arrive(job)
	}
	f := foresight{began: st.now}
	st.s.at(f.began)
	told, err := inspect.New(st.s.throttle).Forecast(context.Background(), jobs[30:])
	if err != nil {
		t.Fatal(err)
	}
	f.last = told.Last
	for _, job := range jobs[30:] {
		st.arrive(job)
	}
	st.play(f.began.Add(within))
	worst := 0.0
	for i, job := range jobs {
		start, started := st.starts[job.ID]
		if !started {
			t.Fatalf("job %s has not started", job.ID)
		}
		f.starts = append(f.starts, throttletest.Start{At: start, Weight: job.Weight, Keys: job.Keys})
		if i < 30 {
			continue
		}
		off, waited := start.Sub(told.Starts[i-30]).Abs(), start.Sub(f.began)
		worst = max(worst, off.Seconds()/waited.Seconds())
		if off > max(2*time.Second, waited/100) {
			t.Errorf("job %s started after %s, forecast was %s", job.ID, waited, told.Starts[i-30].Sub(f.began))
		}
	}
	t.Logf("off by %.4f %% at most", 100*worst)
	for _, over := range throttletest.Check(scopes, f.starts) {
		t.Error(over)
	}
	return f
}
