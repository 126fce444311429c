package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// usedAtOnce makes a thousand jobs start one after the other under exact limits of a tenant and of all, and a thousand
// more wait. It returns half a second before their window is over.
func usedAtOnce(t *testing.T, client *redis.Client, prefix string) *scripted {
	t.Helper()
	const window, jobs = 10 * second, 1000
	exact := []line.Limit{{Units: jobs, Span: line.Window(window), Precision: 1}}
	s := &scripted{client: client, prefix: prefix,
		settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: map[string]line.Scope{
			"global": {Mode: line.Enforce, Limits: exact}, "tenant": {Mode: line.Enforce, Limits: exact},
		}}}
	for n := range 2 * jobs {
		job := line.Job{ID: fmt.Sprint(n), Lane: "a|global:,tenant:a", Costs: []int64{1, 1}, Latest: line.Never, Share: 1}
		if _, _, err := s.reserve(1_795_219_498_000_000+int64(n)*250, []line.Job{job}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestPullOfFiftyTakesFewSteps: one pull books fifty jobs beside two ledgers of a thousand entries, in fewer steps than
// one call may take. A pull that may take fewer steps ends earlier, and the next pulls book the others: no job is
// booked twice.
func TestPullOfFiftyTakesFewSteps(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		now := 1_795_219_498_000_000 + 19*second/2
		for steps, want := range map[int]int{8000: 1, 1000: 0} {
			s := usedAtOnce(t, client, fmt.Sprintf("thr:{steps-%p-%d}:4:", t, steps))
			s.steps = steps
			booked, pulls := make(map[string]bool), 0
			for ; len(booked) < 50 && pulls < 1000; pulls++ {
				told, ends, err := s.pull(now, 50-len(booked), 200, 1)
				if err != nil {
					t.Fatal(err)
				}
				for i := 3; i < len(told); i += 3 {
					if booked[told[i]] {
						t.Fatalf("%s is booked twice", told[i])
					}
					booked[told[i]] = true
				}
				if ends == 0 && len(booked) < 50 {
					t.Fatalf("%d steps: pull %d ends with %d booked: %q", steps, pulls, len(booked), told)
				}
			}
			if want > 0 && pulls != want || want == 0 && (pulls < 3 || pulls > 50) {
				t.Errorf("%d steps: %d are booked in %d pulls", steps, len(booked), pulls)
			}
		}
	})
}

// TestRaisedLimitTakesFewSteps: exact limits of 100 are raised to 200,000, and 3,000 jobs start in their window. Their
// ledgers get coarser meanwhile, so one call has steps enough to decide two heavy jobs. The ledgers have the units of
// all jobs that started.
func TestRaisedLimitTakesFewSteps(t *testing.T) {
	t.Parallel()
	const window, starts, weight = 60 * second, 3000, 20
	onServers(t, func(t *testing.T, client *redis.Client) {
		now := int64(1_795_219_498_000_000)
		exact := []line.Limit{{Units: 100, Span: line.Window(window), Precision: 1}}
		s := &scripted{client: client, prefix: fmt.Sprintf("thr:{raised-steps-%p}:4:", t),
			settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: map[string]line.Scope{
				"global": {Mode: line.Enforce, Limits: exact}, "tenant": {Mode: line.Enforce, Limits: exact},
			}}}
		job := func(id string, cost int64) line.Job {
			return line.Job{ID: id, Lane: "a|global:,tenant:a", Costs: []int64{cost, cost}, Latest: line.Never, Share: 1}
		}
		mustReserve := func(jobs ...line.Job) []string {
			_, answers, err := s.reserve(now, jobs)
			if err != nil {
				t.Fatal(err)
			}
			return answers
		}
		mustReserve(job("before", 1)) // so that there are exact ledgers
		raised := line.LimitsText([]line.Limit{{Units: 200_000, Span: line.Window(window), Precision: window / 100}})
		for _, scope := range []string{"global", "tenant"} {
			if _, err := s.set(now, "limits", scope, raised, 0); err != nil {
				t.Fatal(err)
			}
		}
		for n := range starts {
			now += window / (2 * starts)
			mustReserve(job(fmt.Sprint(n), weight))
		}
		if got := mustReserve(job("heavy", 199_000), job("heavy too", 198_000)); len(got) != 2 {
			t.Errorf("%d of two heavy jobs are decided in one call", len(got))
		}
		state, err := s.usage(now, "tenant:a")
		if want := fmt.Sprintf(" %d ", starts*weight+1); err != nil || !strings.Contains(state, want) {
			t.Errorf("usage %q, %v; want %s units used", state, err, want)
		}
		for _, name := range []string{"global:", "tenant:a"} {
			text := client.Get(t.Context(), s.prefix+"key:"+name).Val() +
				client.Get(t.Context(), s.prefix+"ledger:"+name+":w60000000").Val()
			if entries := len(text) / 32; entries > 2100 {
				t.Errorf("%s has %d entries", name, entries)
			}
		}
	})
}

// TestPageOfQueuesIsBounded: many tenants stand with jobs of a lower priority, so each has a tag here. A page returns
// the tags of its own flows, and all pages together return the tags of all flows. A full page leaves the other queues
// out.
func TestPageOfQueuesIsBounded(t *testing.T) {
	t.Parallel()
	const tenants, onPage = 700, 100
	onServers(t, func(t *testing.T, client *redis.Client) {
		closed := []line.Limit{{Units: 0, Span: line.Window(second), Precision: 1}}
		s := &scripted{client: client, prefix: fmt.Sprintf("thr:{page-%p}:4:", t),
			settings: line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: map[string]line.Scope{
				"global": {Mode: line.Enforce, Limits: closed}, "other": {Mode: line.Enforce, Limits: closed},
			}}}
		now := int64(1_795_219_498_000_000)
		for n := range tenants {
			for _, key := range []string{"global:", "other:a"} {
				job := line.Job{ID: fmt.Sprint(n, key), Lane: fmt.Sprintf("t%d#1|%s", n, key), Costs: []int64{1},
					Latest: line.Never, Share: 1}
				if _, _, err := s.reserve(now, []line.Job{job}); err != nil {
					t.Fatal(err)
				}
			}
		}
		tags := make(map[string]bool)
		for from := 0; from < tenants; from += onPage {
			reply, err := s.run(lua.Lines, now, "queues", "global:", "other:a", from, onPage)
			if err != nil {
				t.Fatal(err)
			}
			all := texts(reply)
			if len(all) > 10*onPage {
				t.Fatalf("a page of %d flows has %d elements", onPage, len(all))
			}
			for _, text := range all {
				if strings.HasPrefix(text, "#t") {
					tags[text] = true
				}
			}
		}
		if len(tags) != tenants {
			t.Errorf("the pages return tags of %d tenants, want %d", len(tags), tenants)
		}
	})
}
