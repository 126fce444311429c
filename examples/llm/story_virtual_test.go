package main

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// jobs is how many prompts keep the provider of withWork busy all the time. By default a fifth of the program's prompts
// is enough to show what its whole run shows.
var jobs = longtest.Of(60, 300)

// withWork returns the program's arguments for a run of jobs prompts, with limits to suit.
func withWork(args ...string) []string {
	number := strconv.Itoa
	return append([]string{"-jobs", number(jobs), "-requests", number(jobs / 5), "-tokens", number(100 * jobs),
		"-budget", "1000000"}, args...)
}

// expectKept fails the test if a report shows that a run broke a limit or a budget, or lost a prompt.
func expectKept(t *testing.T, r *completion.Report, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.WindowsOver != 0 || r.DailyBudgetOver != 0 || r.SettledUnits != r.Tokens ||
		r.BudgetUnits != r.Tokens || r.Lost != 0 || r.Duplicates != 0 || r.Unsettled != 0 {
		t.Errorf("not kept:\n%s", text(r))
	}
}

// While the provider serves its full limits, it refuses nothing: each job is charged what the provider counts, before
// the provider counts it. And the run uses nearly everything that the provider serves.
func TestNothingIsRefusedWithoutAnIncident(t *testing.T) {
	inBubble(t, func(w *world) {
		r, err := w.run(w.t.Context(), withWork("-incident", "1")...)
		expectKept(w.t, r, err)
		if r.Refused429 != 0 || r.Answered != jobs || r.Utilisation == nil || *r.Utilisation < longtest.Of(0.8, 0.87) {
			w.t.Errorf("got\n%s", text(r))
		}
		if r.InteractiveP99S > 5 || r.BatchP50S < 5 || r.PutBacksPerJob > 0.2 { // the batch is what waits
			w.t.Errorf("got\n%s", text(r))
		}
	})
}

// In an incident a refused prompt comes again, and spends no retry; two windows later the provider
// refuses no more.
func TestIncident(t *testing.T) {
	inBubble(t, func(w *world) {
		r, err := w.run(w.t.Context(), withWork("-incident", "0.5")...)
		expectKept(w.t, r, err)
		if r.Refused429 == 0 || r.RefusedAfterAdapting != 0 || r.Answered != jobs || r.ChargedUnits <= r.SettledUnits {
			w.t.Errorf("got\n%s", text(r))
		}
	})
}

// The checks fail without the throttle, in a run that otherwise passes them. In shadow the throttle delays nothing: the
// provider's refusals, its record and the grants show it. A throttle that is off does not count either: then the
// budgets show it too.
func TestChecksFailWithoutTheThrottle(t *testing.T) {
	over := func(r *completion.Report) (record, grants int) {
		for _, l := range r.Limits {
			record, grants = record+l.Record.Over, grants+l.Grants.Over
		}
		return record, grants
	}
	for _, incident := range []string{"1", "0.6"} {
		for _, mode := range []string{"enforce", "shadow", "off"} {
			t.Run(mode+", incident "+incident, func(t *testing.T) {
				if incident != "1" {
					longtest.Only(t, "no incident")
				}
				inBubble(t, func(w *world) {
					r, err := w.run(w.t.Context(), withWork("-incident", incident, "-mode", mode)...)
					if mode == "enforce" {
						expectKept(w.t, r, err)
						return
					}
					if err != nil {
						w.t.Fatal(err)
					}
					record, grants := over(r)
					wrong := []bool{r.RefusedAfterAdapting > 0, record > 0, grants > 0, !r.BudgetsRight == (mode == "off")}
					if r.OK || slices.Contains(wrong, false) || r.GrantToRequest.Slow() ||
						!strings.Contains(text(r), "NOT all is well") {
						w.t.Errorf("refused late, record over, grants over, budgets wrong: %v\n%s", wrong, text(r))
					}
				})
			})
		}
	}
}

// The longer a window is compared with the margin and the time of an answer, the more of it is used. The windows of a
// real provider are a minute long. Which job comes first at one instant differs between runs of one seed, and so does
// the used part: typical are 0.952 to 0.958 of windows of 20 s and 0.966 of a minute; with an incident, 0.906 to 0.943
// of 20 s and 0.938 of a minute. The bounds are lower, to leave room.
func TestLongerWindowsAreUsedMore(t *testing.T) {
	for _, row := range []struct {
		name     string
		incident string
		used     float64
		full     bool // runs in make long only
		args     []string
	}{
		{"20 s", "1", 0.92, false, []string{"-window", "20s", "-budget", "100000"}},
		{"20 s, an incident", "0.6", 0.86, true, []string{"-window", "20s", "-jobs", "600", "-budget", "100000"}},
		{"a minute", "1", 0.94, true, []string{"-window", "1m", "-jobs", "600", "-budget", "100000"}},
		{"a minute, an incident", "0.6", 0.90, true, []string{"-window", "1m", "-jobs", "600", "-budget", "100000"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.full {
				longtest.Only(t, "windows of 20 s without an incident")
			}
			for seed := range longtest.Of(1, 3) {
				inBubble(t, func(w *world) {
					r, err := w.run(w.t.Context(), append(row.args, "-incident", row.incident, "-seed", strconv.Itoa(seed+1))...)
					expectKept(w.t, r, err)
					w.t.Logf("seed %d: %d of %d refused, %d late, %.3f used", seed+1, r.Refused429, r.Requests,
						r.RefusedAfterAdapting, *r.Utilisation)
					if *r.Utilisation < row.used || r.RefusedAfterAdapting != 0 || (row.incident == "1" && r.Refused429 != 0) {
						w.t.Errorf("got\n%s", text(r))
					}
				})
			}
		})
	}
}

// A customer whose budget is used up keeps no other customer waiting: its batch waits for
// tomorrow, and its interactive prompts end with that reason.
func TestBudgetIsUsedUp(t *testing.T) {
	inBubble(t, func(w *world) {
		r, err := w.run(w.t.Context(), withWork("-customers", "2", "-incident", "1", "-budget", strconv.Itoa(200*jobs))...)
		expectKept(w.t, r, err)
		acme := r.Customers[0]
		if acme.Customer != "acme" || acme.ForTomorrow == 0 || acme.OverBudget == 0 ||
			acme.Tokens < int64(180*jobs) || acme.Tokens > int64(200*jobs) {
			w.t.Errorf("got %+v\n%s", acme, text(r))
		}
		if r.Left != 0 || r.Answered+r.ForTomorrow+r.OverBudget != jobs {
			w.t.Errorf("got\n%s", text(r))
		}
	})
}

// A second run on the same Redis continues with the prompts that the first one left, under the same budgets.
func TestSecondRunGoesOn(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		args := withWork("-incident", "1")
		first, err := w.run(ctx, args...)
		if err != nil || !first.Interrupted || first.OK || first.Left == 0 || first.Answered == 0 ||
			first.Lost != 0 || first.SettledUnits != first.Tokens {
			w.t.Fatalf("first run: %v\n%s", err, text(first))
		}
		second, err := w.run(w.t.Context(), args...)
		expectKept(w.t, second, err)
		if second.AnsweredEarlier != first.Answered || second.Answered != jobs || second.Requests != first.Left {
			w.t.Errorf("second run:\n%s", text(second))
		}
	})
}

// A provider's first answer may also be an error, or broken: the run ends well all the same.
func TestOtherAnswers(t *testing.T) {
	for _, row := range []struct {
		name      string
		status    int
		body      string
		asked     int64 // times
		unsettled int   // charges that stay as estimated
		givenUp   int
	}{
		{"a request that is wrong", http.StatusBadRequest, `{"error":{"message":"too long for me"}}`, 1, 1, 1},
		{"a server that fails", http.StatusInternalServerError, "oops", 2, 1, 0},
		{"a server that is away", http.StatusServiceUnavailable, "", 2, 0, 0},
		{"an answer that breaks off", http.StatusOK, `{"choices":`, 2, 1, 0},
		{"an answer without usage", http.StatusOK, `{"choices":[{"message":{"content":"yes"}}]}`, 1, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.elsewhere = true
				var asked atomic.Int64
				w.answers = http.HandlerFunc(func(reply http.ResponseWriter, r *http.Request) {
					if asked.Add(1) > 1 {
						w.inside.ServeHTTP(reply, r)
						return
					}
					reply.WriteHeader(row.status)
					_, _ = reply.Write([]byte(row.body))
				})
				r, err := w.run(w.t.Context(), "-jobs", "1", "-incident", "1")
				if err != nil || asked.Load() != row.asked || r.Unsettled != row.unsettled ||
					r.GivenUp != row.givenUp || r.Answered != 1-row.givenUp || r.Lost != 0 {
					w.t.Errorf("asked %d times: %v\n%s", asked.Load(), err, text(r))
				}
				if row.givenUp > 0 && !strings.Contains(text(r), "too long for me") {
					w.t.Errorf("the report does not say why:\n%s", text(r))
				}
			})
		})
	}
}
