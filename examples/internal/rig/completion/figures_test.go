package completion

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

var began = time.UnixMicro(1_000_000_000)

// at returns the instant a number of seconds after the beginning.
func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

// served returns a request of some tokens, which is answered half a second later.
func served(id string, when float64, tokens int64) provider.Request {
	return provider.Request{At: at(when), End: at(when + 0.5), ID: id, Model: "m", Customer: "acme",
		Prompt: tokens - 1, Completion: 1}
}

func refused(when float64) provider.Request {
	return provider.Request{At: at(when), End: at(when), ID: "r", Model: "m", Customer: "acme", Prompt: 5, Refused: true}
}

// levels returns how much of 10 requests and 100 tokens in a window of ten seconds is served when: less from the 40th
// second to the 80th.
func levels() []level {
	full, less := provider.Limits{Requests: 10, Tokens: 100}, provider.Limits{Requests: 6, Tokens: 60}
	return []level{{at(0), full}, {at(40), less}, {at(80), full}}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		when     float64
		adapting bool
	}{{1, false}, {39.9, false}, {40, true}, {60, true}, {60.1, false}, {79, false}, {80, true}, {100, true},
		{101, false}} {
		r := result{window: 10 * time.Second, served: levels(),
			requests: []provider.Request{served("a", 1, 5), refused(row.when)}}
		all, late := r.refusals()
		if all != 1 || (late == 0) != row.adapting {
			t.Errorf("at %g s: %d refused, %d of them late", row.when, all, late)
		}
	}
	r := result{window: 10 * time.Second, served: levels()[:1], requests: []provider.Request{refused(50)}}
	if all, late := r.refusals(); all != 1 || late != 1 {
		t.Errorf("without a change: %d refused, %d of them late", all, late)
	}
}

func TestUtilisation(t *testing.T) {
	t.Parallel()
	batch := []outcome{{prompt: &prompt.Prompt{ID: "b", Kind: prompt.Batch}}}
	for _, row := range []struct {
		name                         string
		requests                     []provider.Request
		fuller, ofRequests, ofTokens float64
	}{
		{"full of tokens at every instant",
			[]provider.Request{served("a", 0, 100), served("a", 10, 100), served("b", 20, 100)}, 1, 0.1, 1},
		{"nothing after the first window", []provider.Request{served("a", 0, 100), served("b", 20, 50)}, 0, 0, 0},
		{"for eight seconds of ten", []provider.Request{served("a", 0, 100), served("a", 12, 100),
			served("b", 20, 1)}, 0.8, 0.08, 0.8},
		{"what is refused is not used", []provider.Request{served("a", 0, 1), refused(5), served("a", 10, 100),
			refused(11), served("b", 20, 1)}, 1, 0.1, 1},
		{"under way over a change", []provider.Request{served("a", 25, 5), served("a", 35, 90), served("b", 45, 5)},
			(5*0.9 + 5*1) / 10, (5*0.1 + 5./6) / 10, (5*0.9 + 5*1) / 10},
		{"more than is served since a change",
			[]provider.Request{served("a", 25, 1), served("a", 36, 100), served("b", 46, 1)}, 10. / 11,
			(4*0.1 + 6*1./6) / 11, 10. / 11},
	} {
		r := result{window: 10 * time.Second, served: levels(), requests: row.requests, outcomes: batch}
		fuller, requests, tokens := r.utilisation()
		for _, pair := range [][2]float64{{*fuller, row.fuller}, {*requests, row.ofRequests}, {*tokens, row.ofTokens}} {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%s: got %g, %g, %g; want %g, %g, %g", row.name, *fuller, *requests, *tokens, row.fuller,
					row.ofRequests, row.ofTokens)
				break
			}
		}
	}
	never := result{window: 10 * time.Second, served: levels(),
		requests: []provider.Request{served("a", 0, 5), served("b", 10, 5)}, outcomes: batch}
	if fuller, requests, tokens := never.utilisation(); fuller != nil || requests != nil || tokens != nil {
		t.Error("a run of one window has a utilisation")
	}
	if fuller, _, _ := (result{window: time.Second, served: levels()}).utilisation(); fuller != nil {
		t.Error("a run without requests has a utilisation")
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	one := func(id string, kind prompt.Kind, arrived float64, how state) outcome {
		return outcome{prompt: &prompt.Prompt{ID: id, Kind: kind}, arrived: at(arrived), state: how}
	}
	r := result{
		requests: []provider.Request{served("a", 1, 5), served("b", 2, 5), served("c", 3, 5), served("d", 4, 5), refused(5)},
		outcomes: []outcome{
			one("c", prompt.Interactive, 1, answered), one("a", prompt.Interactive, 1, answered),
			one("b", prompt.Batch, 0, answered),
			one("d", prompt.Interactive, 0, gaveUp), one("r", prompt.Interactive, 0, answered),
			{prompt: &prompt.Prompt{ID: "a", Kind: prompt.Interactive}, state: answered, earlier: true},
		},
	}
	if got := r.waits(prompt.Interactive); !slices.Equal(slices.Sorted(slices.Values(got)), []float64{0.5, 2.5}) {
		t.Errorf("interactive: got %v, want 0.5 and 2.5", got)
	}
	if got := r.waits(prompt.Batch); len(got) != 1 || got[0] != 2.5 {
		t.Errorf("batch: got %v, want 2.5", got)
	}
}
