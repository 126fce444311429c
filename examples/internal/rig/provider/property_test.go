package provider_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

// The settings of the property.
const (
	length    = 2 * time.Second
	histories = 40
	asked     = 120
)

// In random histories, with requests under way at the same time and an incident, a request
// is refused if and only if the window that ends at its arrival has no room for it.
func TestWindowsAreRight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(histories) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				full := provider.Limits{Requests: 1 + random.Int64N(20), Tokens: 200 + random.Int64N(800)}
				p := provider.New(provider.Options{
					Models: map[string]provider.Limits{"small": full}, Window: length, Seed: seed,
					Incident:   provider.Incident{From: 3 * time.Second, Until: 7 * time.Second, Part: 0.6},
					FirstToken: time.Duration(random.IntN(300)) * time.Millisecond,
					PerToken:   time.Duration(random.IntN(5)) * time.Millisecond,
				})
				remaining := play(t, p, random)
				record := p.Record.All()
				if len(record) != asked {
					t.Fatalf("%d of %d requests are in the record", len(record), asked)
				}
				for i, r := range record {
					expectRight(t, p, record[:i], r, remaining[r.ID])
				}
				expectWindows(t, record, full)
			})
		})
	}
}

// play sends requests at random instants. No two instants are equal, and none is the end of an answer: they differ in
// their microseconds. It returns what the headers of each answer gave as remaining.
func play(t *testing.T, p *provider.Provider, random *rand.Rand) map[string]string {
	t.Helper()
	remaining := make(map[string]string)
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for i := range asked {
		at := time.Duration(random.IntN(10_000))*time.Millisecond + time.Duration(i+1)*time.Microsecond
		r := prompt(5+random.Int64N(60), 1+random.Int64N(100))
		r.Stream = random.IntN(2) == 0
		all.Go(func() {
			time.Sleep(time.Until(began.Add(at)))
			h := ask(t.Context(), p, fmt.Sprint(i), r).Header()
			mu.Lock()
			defer mu.Unlock()
			remaining[fmt.Sprint(i)] = h.Get("x-ratelimit-remaining-requests") + " " + h.Get("x-ratelimit-remaining-tokens")
		})
	}
	all.Wait()
	return remaining
}

// expectRight finds out from the earlier requests whether a request had room.
func expectRight(t *testing.T, p *provider.Provider, before []provider.Request, r provider.Request, remaining string) {
	t.Helper()
	limits, _ := p.Limits("small", r.At)
	var used provider.Limits
	for _, b := range before {
		if b.Refused || !b.At.After(r.At.Add(-length)) {
			continue
		}
		used.Requests++
		used.Tokens += b.Prompt
		if b.End.After(r.At) {
			used.Tokens += b.MaxTokens
		} else {
			used.Tokens += b.Completion
		}
	}
	fits := used.Requests+1 <= limits.Requests && used.Tokens+r.Prompt+r.MaxTokens <= limits.Tokens
	if fits == r.Refused {
		t.Errorf("%+v: %+v of %+v were used, refused %v", r, used, limits, r.Refused)
	}
	if fits {
		used.Requests++
		used.Tokens += r.Prompt + r.MaxTokens
	}
	if want := fmt.Sprintf("%d %d", max(0, limits.Requests-used.Requests),
		max(0, limits.Tokens-used.Tokens)); remaining != want {
		t.Errorf("%+v: the headers say that %s remain, want %s", r, remaining, want)
	}
}

// expectWindows adds up what was served in each window.
func expectWindows(t *testing.T, record []provider.Request, full provider.Limits) {
	t.Helper()
	always := func(int64) bool { return true }
	var requests, tokens []check.Event
	for _, r := range record {
		if !r.Refused {
			requests = append(requests, check.Event{At: r.At.UnixMicro(), Units: 1})
			tokens = append(tokens, check.Event{At: r.At.UnixMicro(), Units: r.Tokens()})
		}
	}
	if len(requests) == 0 || len(requests) == asked {
		t.Errorf("%d of %d requests were served: nothing is shown by it", len(requests), asked)
	}
	if worst, over := check.FullestWindow(requests, full.Requests, length.Microseconds(), always); over != 0 {
		t.Errorf("%d requests in a window, %d are served", worst, full.Requests)
	}
	if worst, over := check.FullestWindow(tokens, full.Tokens, length.Microseconds(), always); over != 0 {
		t.Errorf("%d tokens in a window, %d are served", worst, full.Tokens)
	}
}
