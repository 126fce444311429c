package throttle_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	client := quickServer(t)
	for _, seed := range []int{37} {
		random := rand.New(rand.NewPCG(uint64(seed), 11))
		f := drawForeseen(func(_ string, n int) int { return random.IntN(n) }, false)
		st := newStage(t, client, f.scopes, f.options)
		st.phase = f.phase
		if f.paused > 0 {
			st.s.Pause(st.now, "tenant", "t0", st.now.Add(f.paused))
		}
		for i, job := range f.before {
			st.arrive(job)
			if f.idle[i] > 0 {
				st.play(st.now.Add(f.idle[i]))
			}
		}
		began := st.now
		st.s.now = began
		forecast, _ := st.s.throttle.Forecast(context.Background(), f.after)
		for _, job := range f.after {
			st.arrive(job)
		}
		st.play(st.now.Add(48 * time.Hour))
		var sum, abs time.Duration
		var lastR, lastF time.Time
		n := 0
		heavy := false
		for i, job := range f.after {
			s := st.starts[job.ID]
			d := s.Sub(forecast.Starts[i])
			sum += d
			abs += d.Abs()
			if s.After(lastR) {
				lastR = s
			}
			if forecast.Starts[i].After(lastF) {
				lastF = forecast.Starts[i]
			}
			if d.Abs() > time.Second {
				n++
			}
			if job.Weight > 1 {
				heavy = true
			}
		}
		for _, job := range f.before {
			if job.Weight > 1 {
				heavy = true
			}
		}
		for i, job := range f.after {
			t.Logf("seed: %s w%d %s/%s real %s forecast %s", job.ID, job.Weight, job.Keys["tenant"], job.Keys["domain"], st.starts[job.ID].Sub(began), forecast.Starts[i].Sub(began))
		}
		if n > 0 {
			t.Logf("seed %d: %d of %d off, mean diff %s mean abs %s; last real %s forecast %s; heavy %v domains %d tenants %d paused %v scopes %v look %v", seed, n, len(f.after), sum/time.Duration(len(f.after)), abs/time.Duration(len(f.after)), lastR.Sub(began), lastF.Sub(began), heavy, f.domains, f.tenants, f.paused, f.scopes, f.options.Lookahead)
		}
	}
}
