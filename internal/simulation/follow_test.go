package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// said is what an upstream reports about a scope key at an instant, outside of any handler.
type said struct {
	at         time.Duration
	scope, key string
	report     throttle.Report
}

func (s said) String() string {
	return fmt.Sprintf("%s of %s %q: refused %t, to wait %s, limits %v", s.at, s.scope, s.key, s.report.Refused,
		s.report.RetryAfter, s.report.Limits)
}

// talk is how the upstreams of one world answer.
type talk struct {
	answers float64 // the part of the jobs whose handlers report what is said
	refuses float64 // the part of the answers that are refusals
	counts  bool    // the answers say how many units are left
}

// drawFollowing draws scopes whose limits follow their upstream, and what the upstream says: to
// handlers with each of their calls, and at any time to a reporter without a job. If handlers hear
// little, the served share stays low, and jobs that weigh more than it must run all the same.
func (p *plan) drawFollowing(d dice) {
	how := talk{answers: one(d, 0.8, 0.8, 0.05), refuses: one(d, 0, 0.02, 0.1), counts: d.chance(0.4)}
	p.scopes[d.IntN(len(p.scopes))].Floor = how.floor(d)
	others := talk{refuses: 0.5, counts: how.counts}
	for i := range p.scopes {
		scope := &p.scopes[i]
		if d.chance(0.5) {
			scope.Floor = how.floor(d)
		}
		if scope.Floor == 0 {
			continue
		}
		for _, j := range p.jobs {
			p.drawSaid(d, j, scope, how)
		}
		for range d.count(0, 8) {
			if keys := p.keys(scope.Name); len(keys) > 0 {
				p.said = append(p.said, said{d.between(0, p.span), scope.Name, one(d, keys...), others.report(d, scope)})
			}
		}
	}
	for i := range p.faults {
		if f := &p.faults[i]; f.does == loss && d.chance(0.2) {
			f.verb = "report"
		}
	}
}

// floor draws the floor of a scope: not so low that work takes hours if nothing raises the share.
func (h talk) floor(d dice) float64 {
	floor := one(d, 0.001, 0.1, 0.3, 0.3, 0.5, 0.5, 0.8, 0.999)
	if h.answers < 0.5 {
		return max(0.1, floor)
	}
	return floor
}

// drawSaid draws what a job's handler hears with each call. A handler that is asked to wait may
// not hear for how long.
func (p *plan) drawSaid(d dice, j *job, scope *throttle.Scope, how talk) {
	if scope.Name != throttle.Global && j.key(scope.Name) == "" {
		return
	}
	if d.chance(how.answers) {
		if j.said == nil {
			j.said = make(map[string]throttle.Report)
		}
		j.said[scope.Name] = how.report(d, scope)
	}
	for i := range j.outcomes {
		if o := &j.outcomes[i]; o.does == waits && o.scope == scope.Name && d.chance(0.3) {
			o.wait = 0
		}
	}
}

// report draws what an upstream says.
func (h talk) report(d dice, scope *throttle.Scope) throttle.Report {
	r := throttle.Report{Refused: d.chance(h.refuses)}
	if r.Refused {
		r.RetryAfter = one(d, 0, 0, d.between(0, 5*time.Second))
	}
	for _, limit := range scope.Limits {
		if limit.Running || !d.chance(0.15) {
			continue
		}
		told := throttle.ReportedLimit{Window: one(d, 0, limit.Window, limit.Window, time.Minute),
			Units: one(d, 0, d.Int64N(limit.Units+1), limit.Units, 2*limit.Units), Remaining: -1}
		if h.counts && d.chance(0.2) {
			told.Remaining = one(d, 0, d.Int64N(told.Units+1), told.Units)
		}
		r.Limits = append(r.Limits, told)
	}
	return r
}

// follows reports whether the limits of a scope follow their upstream.
func (p *plan) follows(scope string) bool {
	return slices.ContainsFunc(p.scopes, func(s throttle.Scope) bool { return s.Name == scope && s.Floor > 0 })
}

// heard returns all reports of a scope that are made if nothing goes wrong. A handler that is
// asked to wait reports that as well.
func (p *plan) heard(scope string) (all []throttle.Report) {
	for _, s := range p.said {
		if s.scope == scope {
			all = append(all, s.report)
		}
	}
	for _, j := range p.jobs {
		if r, is := j.said[scope]; is {
			all = append(all, slices.Repeat([]throttle.Report{r}, j.calls())...)
		}
		for _, o := range j.outcomes {
			if o.does == waits && o.scope == scope {
				all = append(all, throttle.Report{Refused: true, RetryAfter: o.wait})
			}
		}
	}
	return all
}

// closed returns how long a scope's upstream holds up the work at most, as if all reports
// were about one key and no success came between the refusals: the pauses, and the windows
// that are full of what others have used.
func (p *plan) closed(scope *throttle.Scope) (total time.Duration) {
	var longest time.Duration
	for _, limit := range scope.Limits {
		longest = max(longest, limit.Window)
	}
	refused := 0
	for _, r := range p.heard(scope.Name) {
		if total += r.RetryAfter; r.Refused {
			total += min(5*time.Minute, time.Second<<min(refused, 9))
			refused++
		}
		for _, told := range r.Limits {
			if told.Remaining >= 0 {
				total += longest + longest/10
			}
		}
	}
	return total
}

// served returns how many units of a limit the upstream serves at a served share.
func served(units int64, part float64) int64 {
	return max(1, units*int64(math.Round(part*1000))/1000)
}

// windowsOf returns how many windows a key's work takes at most under a limit. Heavy jobs leave up
// to half of each window empty, and a job that weighs more than the served units needs a window for
// itself, and an empty one before.
func (p *plan) windowsOf(scope *throttle.Scope, key string, limit throttle.Limit) float64 {
	least := atLast(limit)
	heavy := 0
	if scope.Floor > 0 {
		least = served(least, scope.Floor)
		for _, j := range p.jobs {
			if j.key(scope.Name) == key && j.cost(scope.Name) > least {
				heavy += 2 * j.calls()
			}
		}
	}
	return math.Ceil(2*float64(p.demand(scope.Name, key))/float64(least)) + 2 + float64(heavy)
}

// hear makes the reports of a job's handler: what its upstreams say to it.
func (w *world) hear(ctx context.Context, j *job) {
	for _, scope := range w.plan.scopes {
		r, is := j.said[scope.Name]
		if !is {
			continue
		}
		if _, err := worker.Report(ctx, scope.Name, r); err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			w.errorf("Report: %v", err)
		}
	}
}

// say makes a report outside of any handler.
func (w *world) say(s said) {
	_, err := w.operator.throttle.Report(context.Background(), s.scope, s.key, s.report)
	if !errors.Is(err, throttle.ErrUnavailable) { // its reply may be lost
		w.must("Report", err)
	}
}

// adapted takes up a report: the served share before must be the one that the account knows, and
// the share from now on must lie between the floor and 1. If the report says what others have used,
// Redis counts more than the account knows of.
func (a *account) adapted(argv []string, reply []any) {
	name, before, is := argv[3], number(text(reply[2])), number(text(reply[3]))
	scope, _ := a.scopeOf(name)
	if least, most := a.partsOf(name); before != least && before != most {
		a.world.errorf("a report of %s: %d thousandths were served, the account says %d to %d", name, before, least, most)
	}
	if least := int64(math.Round(scope.Floor * 1000)); is < least || is > 1000 {
		a.world.errorf("a report of %s: %d thousandths are served, want %d to 1000", name, is, least)
	}
	a.parts[name] = is
	refused := strings.HasPrefix(argv[4], "1 ")
	if now := number(text(reply[0])); is != before || refused {
		since := a.adaptedAt[name]
		if is != before {
			since[0] = now
		}
		a.adaptedAt[name] = [2]int64{since[0], now}
	}
	a.reports++
	if is < before {
		a.lowered++
	}
	for told := range strings.SplitSeq(argv[5], ",") {
		if remaining := strings.Split(told, "/"); len(remaining) == 3 && number(remaining[2]) >= 0 {
			a.inexact[name] = true
		}
	}
}

// partsOf returns the bounds of the served share of a scope key's limits, in thousandths. Redis remembers the share for
// a day after its last change, or after a refusal that had to be taken into account.
func (a *account) partsOf(name string) (least, most int64) {
	part, is := a.parts[name]
	now, at := a.world.now().Add(-24*time.Hour), a.adaptedAt[name]
	switch {
	case !is || now.Add(-time.Hour).UnixMicro() > at[1]:
		return 1000, 1000
	case now.Add(time.Hour).UnixMicro() > at[0]:
		return part, 1000
	}
	return part, part
}

// mostOf returns how many units a window in which a job starts may hold: the served units of the
// limit, or the job alone.
func (a *account) mostOf(name string, units, weight int64) int64 {
	_, most := a.partsOf(name)
	return max(served(units, float64(most)/1000), weight)
}
