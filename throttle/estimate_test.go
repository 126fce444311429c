package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// guess is what a job in line is told of its start.
type guess struct {
	Start time.Duration // since dawn
	Late  time.Duration // since dawn
	Ahead int64
	Hold  string // scope, key and what they hold: used, booked
}

func guessOf(r throttle.Reservation) guess {
	g := guess{Start: r.Start.Sub(dawn), Late: r.AskAgain.Sub(dawn), Ahead: r.Ahead}
	if r.Hold != nil {
		g.Hold = fmt.Sprintf("%s %s %s: %d, %d", r.Hold.Scope, r.Hold.Key, r.Hold.Limit, r.Hold.Used, r.Hold.Booked)
	}
	return g
}

// asking is one job that comes, at an instant since dawn.
type asking struct {
	at     time.Duration
	id     string
	weight int64
	tenant string
	domain string
	want   throttle.Outcome
}

func (a asking) job() throttle.Job {
	job := throttle.Job{ID: a.id, Weight: a.weight, Keys: of(a.tenant)}
	if a.domain != "" {
		job.Keys["domain"] = a.domain
	}
	return job
}

// guessScopes are limits per 10 s: a job that is n units over one of u units waits
// n/u of 10 s.
func guessScopes(tenant, domain, all int64) []throttle.Scope {
	limits := func(units int64) []throttle.Limit { return []throttle.Limit{throttle.Per(units, 10*time.Second)} }
	return []throttle.Scope{
		{Name: "tenant", Limits: limits(tenant)},
		{Name: "domain", Limits: limits(domain), Optional: true},
		{Name: throttle.Global, Limits: limits(all)},
	}
}

const (
	granted = throttle.Granted
	waiting = throttle.Waiting
)

// guesses are situations, each with what the last job in them is told. The first of a lane
// waits until there is room for it; one with n jobs before it at least for its weight and n
// times the mean of those that have waited, under a limit of its own fair key, and under any other for as many
// times more as flows stand there. AskAgain is 4 times the wait, twice the lookahead of 1 s, and 10 s.
var guesses = map[string]struct {
	scopes []throttle.Scope
	shares map[string]int
	before []asking
	asked  asking
	want   guess
}{
	"first in line behind its own limit: there is room then": {
		scopes: guessScopes(2, 100, 100),
		before: []asking{{0, "1", 2, "a", "", granted}},
		asked:  asking{time.Second, "2", 1, "a", "", waiting},
		want:   guess{10 * time.Second, 49 * time.Second, 0, "tenant a 2/10s: 2, 0"}, // 1 + 4x9 + 12
	},
	"behind 2 jobs of its lane": {
		scopes: guessScopes(2, 100, 100),
		before: []asking{{0, "1", 2, "a", "", granted}, {time.Second, "2", 2, "a", "", waiting},
			{time.Second, "3", 2, "a", "", waiting}},
		asked: asking{time.Second, "4", 1, "a", "", waiting},
		want:  guess{26 * time.Second, 113 * time.Second, 2, "tenant a 2/10s: 2, 0"}, // 2+2+1 of 2: 25 s
	},
	"behind its tenant's other lane, of which nothing is told": {
		scopes: guessScopes(2, 100, 100),
		before: []asking{{0, "1", 2, "a", "", granted}, {time.Second, "2", 2, "a", "x", waiting},
			{time.Second, "3", 2, "a", "x", waiting}},
		asked: asking{time.Second, "4", 1, "a", "y", waiting},
		want:  guess{10 * time.Second, 49 * time.Second, 0, "tenant a 2/10s: 2, 0"},
	},
	"the shared limit, nobody else": {
		scopes: guessScopes(100, 100, 2),
		before: []asking{{0, "1", 2, "z", "", granted}, {time.Second, "2", 2, "a", "", waiting},
			{time.Second, "3", 2, "a", "", waiting}},
		asked: asking{time.Second, "4", 1, "a", "", waiting},
		want:  guess{26 * time.Second, 113 * time.Second, 2, "global  2/10s: 2, 0"}, // 2+2+1 of 2: 25 s
	},
	"the shared limit, one other has a line": {
		scopes: guessScopes(100, 100, 2),
		before: []asking{
			{0, "1", 2, "z", "", granted}, {time.Second, "2", 2, "a", "", waiting}, {time.Second, "3", 2, "a", "", waiting},
			{time.Second, "4", 1, "b", "", waiting},
		},
		asked: asking{time.Second, "5", 1, "a", "", waiting},
		// (2x5/3+1)x2 of 2: 43 s
		want: guess{44333333 * time.Microsecond, 186333332 * time.Microsecond, 2, "global  2/10s: 2, 0"},
	},
	"the shared limit, the first of a tenant beside a line of others": {
		scopes: guessScopes(100, 100, 2),
		before: []asking{{0, "1", 2, "z", "", granted}, {time.Second, "2", 2, "b", "", waiting},
			{time.Second, "3", 2, "b", "", waiting}},
		asked: asking{time.Second, "4", 1, "a", "", waiting},
		want:  guess{11 * time.Second, 53 * time.Second, 0, "global  2/10s: 2, 0"}, // 1x2 of 2: 10 s; there is room at 10 s
	},
	"the shared limit, three others": {
		scopes: guessScopes(100, 100, 2),
		before: []asking{
			{0, "1", 2, "z", "", granted}, {time.Second, "2", 2, "a", "", waiting}, {time.Second, "3", 1, "b", "", waiting},
			{time.Second, "4", 2, "c", "", waiting}, {time.Second, "5", 2, "d", "", waiting},
		},
		asked: asking{time.Second, "6", 1, "a", "", waiting},
		want:  guess{56 * time.Second, 233 * time.Second, 1, "global  2/10s: 2, 0"}, // (7/4+1)x4 of 2: 55 s
	},
	"the shared limit, three others: shares are not counted": {
		scopes: guessScopes(100, 100, 2),
		shares: map[string]int{"a": 3},
		before: []asking{
			{0, "1", 2, "z", "", granted}, {time.Second, "2", 2, "a", "", waiting}, {time.Second, "3", 1, "b", "", waiting},
			{time.Second, "4", 2, "c", "", waiting}, {time.Second, "5", 2, "d", "", waiting},
		},
		asked: asking{time.Second, "6", 1, "a", "", waiting},
		want:  guess{56 * time.Second, 233 * time.Second, 1, "global  2/10s: 2, 0"}, // the same
	},
	"two limits that have room at the same instant: the first is told": {
		scopes: guessScopes(2, 100, 8),
		before: []asking{
			{0, "1", 2, "a", "", granted}, {0, "2", 2, "z", "", granted}, {0, "3", 2, "y", "", granted},
			{0, "4", 2, "x", "", granted},
			{time.Second, "5", 2, "a", "", waiting}, {time.Second, "6", 1, "b", "", waiting},
		},
		asked: asking{time.Second, "7", 1, "a", "", waiting},
		want:  guess{10 * time.Second, 49 * time.Second, 1, "global  8/10s: 8, 0"}, // 2x2 of 8: 5 s; there is room at 10 s
	},
	"a full domain: what its tenant has in other lanes is not before it": {
		scopes: guessScopes(100, 1, 100),
		before: []asking{
			{0, "1", 1, "a", "x", granted}, {0, "2", 1, "a", "y", granted}, {time.Second, "3", 1, "a", "x", waiting},
			{time.Second, "4", 1, "a", "y", waiting}, {time.Second, "5", 1, "a", "y", waiting},
		},
		asked: asking{time.Second, "6", 1, "a", "x", waiting},
		want:  guess{21 * time.Second, 93 * time.Second, 1, "domain x 1/10s: 1, 0"}, // 1+1+1-1 = 2 of 1: 20 s
	},
	"a full domain: other tenants that wait for it take turns": {
		scopes: guessScopes(100, 1, 100),
		before: []asking{{0, "1", 1, "a", "x", granted}, {time.Second, "2", 1, "b", "x", waiting},
			{time.Second, "3", 1, "b", "x", waiting}},
		asked: asking{time.Second, "4", 1, "a", "x", waiting},
		want:  guess{21 * time.Second, 93 * time.Second, 0, "domain x 1/10s: 1, 0"}, // 1x2 of 1: 20 s
	},
	"what is booked is before it": {
		scopes: guessScopes(2, 100, 100),
		before: []asking{
			{0, "1", 2, "a", "", granted}, {9500 * time.Millisecond, "2", 2, "a", "", throttle.Booked},
			{9500 * time.Millisecond, "3", 1, "a", "", waiting},
		},
		asked: asking{9500 * time.Millisecond, "4", 1, "a", "", waiting},
		// 2 of 2: 10 s; there is room at 20 s
		want: guess{20 * time.Second, 63500 * time.Millisecond, 1, "tenant a 2/10s: 2, 2"},
	},
	"known again: all of its lane but itself": {
		scopes: guessScopes(100, 100, 10),
		before: []asking{
			{0, "1", 10, "z", "", granted}, {time.Second, "2", 1, "a", "", waiting}, {time.Second, "3", 3, "a", "", waiting},
			{time.Second, "4", 4, "a", "", waiting}, {time.Second, "5", 4, "a", "", waiting},
		},
		asked: asking{time.Second, "4", 4, "a", "", waiting},
		want:  guess{14 * time.Second, 65 * time.Second, 3, "global  10/10s: 10, 0"}, // 3x3+4 of 10: 13 s
	},
	"a light one that would have room, were it not for heavy ones of its lane": {
		scopes: guessScopes(100, 100, 10),
		before: []asking{{0, "1", 8, "z", "", granted}, {time.Second, "2", 6, "a", "", waiting},
			{time.Second, "3", 6, "a", "", waiting}},
		asked: asking{time.Second, "4", 1, "a", "", waiting},
		want:  guess{4 * time.Second, 25 * time.Second, 2, ""}, // 6+6+1 of 10, of which 10 at once: 3 s
	},
	"no wait is guessed longer than the longest window": {
		scopes: globalAndTenant(throttle.Per(1, maxWindow)),
		before: []asking{{0, "1", 1, "a", "", granted}, {time.Second, "2", 1, "a", "", waiting}},
		asked:  asking{time.Second, "3", 1, "a", "", waiting},
		want:   guess{time.Second + maxWindow, 240*time.Hour + 13*time.Second, 1, "global  1/9600h: 1, 0"},
	},
}

// globalAndTenant has a fair scope that limits nothing.
func globalAndTenant(all throttle.Limit) []throttle.Scope {
	return tenantAndGlobal(throttle.Per(throttle.Unlimited, time.Second), all)
}

// TestGuesses: what a job in line is told of its start, and what is said to hold it.
func TestGuesses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, test := range guesses {
			s := nearly(t, client, test.scopes, throttle.Options{Shares: test.shares})
			for _, a := range test.before {
				comes(t, s, a.at, a.job(), a.want)
			}
			r := comes(t, s, test.asked.at, test.asked.job(), test.asked.want)
			if diff := cmp.Diff(test.want, guessOf(r)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			late := r.AskAgain.After(r.Start) || r.AskAgain.Sub(r.Now) >= 240*time.Hour
			if !late || r.Start.Before(r.Now) || r.Hold != nil && !r.Hold.Until.Equal(r.Start) {
				t.Errorf("%s: now %s, start %s, hold %v, late %s", name, r.Now, r.Start, r.Hold, r.AskAgain)
			}
		}
	})
}
