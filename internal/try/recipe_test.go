package try_test

import (
	"math"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/try"
)

// TestRecipe: the recipe's side is about what was measured on real servers: the picture of the README, and the drain
// of docs/benchmarks.md with as many jobs as are played.
func TestRecipe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jobs              string
		putBacks, fullest float64
	}{
		"the README's picture": {"150", 3.9, 1.7},
		"3,000 of 4,000 jobs":  {"500", 15.36 * 3 / 4, 1.99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := try.Play(try.Input{Global: "200/2s", Tenant: "50/2s", Tenants: "8", Jobs: c.jobs})
			if err != nil {
				t.Fatal(err)
			}
			if part := r.Recipe.PutBacks / c.putBacks; part < 0.7 || part > 1.4 {
				t.Errorf("put back %.2f times per job, want about %.2f", r.Recipe.PutBacks, c.putBacks)
			}
			if math.Abs(r.Recipe.Fullest-c.fullest) > 0.3 {
				t.Errorf("the fullest window has %.2f of its limit, want about %.2f", r.Recipe.Fullest, c.fullest)
			}
		})
	}
}

// TestRecipeObeysTheIncident: a job that is refused in it comes back at its end.
func TestRecipeObeysTheIncident(t *testing.T) {
	t.Parallel()
	r, err := try.Play(try.Input{Jobs: "5", Tenants: "2", Paused: "tenant", Until: "20s"})
	if err != nil {
		t.Fatal(err)
	}
	first, second := r.Recipe.Waits[0], r.Recipe.Waits[1]
	if r.Recipe.PutBacks != 0.5 || first.Longest < 20 || first.Longest > 21 || second.Longest != 0 {
		t.Errorf("put back %.2f times per job, waits %+v and %+v", r.Recipe.PutBacks, first, second)
	}
}
