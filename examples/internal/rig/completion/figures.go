package completion

import (
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
)

// refusals counts the refused requests, and how many of them came later than two windows after
// a change of what the provider serves: by then a client has seen the change.
func (r result) refusals() (all, afterAdapting int) {
	for _, one := range r.requests {
		if !one.Refused {
			continue
		}
		all++
		adapting := false
		for _, change := range r.served[1:] {
			since := one.At.Sub(change.from)
			adapting = adapting || since >= 0 && since <= 2*r.window
		}
		if !adapting {
			afterAdapting++
		}
	}
	return all, afterAdapting
}

// busy returns the part of the run in which there was work for the whole capacity of the provider: from a window after
// its first request, since a window takes that long to fill, to the last request of a batch. It returns false if there
// was no such part.
func (r result) busy() (from, until time.Time, ok bool) {
	served, known := r.answers(), r.byID()
	if len(served) == 0 {
		return from, until, false
	}
	from = served[0].At.Add(r.window)
	for _, one := range served {
		if p := known[one.ID]; p != nil && p.Kind == prompt.Batch {
			until = one.At
		}
	}
	return from, until, until.After(from)
}

// utilisation returns how full the provider's windows were on average while it was busy: their used part of what the
// provider served then, at most 1. The first result takes the fuller of the two limits at each instant. All are nil if
// the provider was never busy.
func (r result) utilisation() (fuller, ofRequests, ofTokens *float64) {
	from, until, ok := r.busy()
	if !ok {
		return nil, nil, nil
	}
	var sums [3]float64
	instants := r.changesOfUse(from, until)
	for i, at := range instants[1:] {
		requests, tokens := r.fill(instants[i])
		for n, part := range []float64{max(requests, tokens), requests, tokens} {
			sums[n] += part * at.Sub(instants[i]).Seconds() / until.Sub(from).Seconds()
		}
	}
	return &sums[0], &sums[1], &sums[2]
}

// changesOfUse returns from, until, and the instants between them at which the use of a window may change.
func (r result) changesOfUse(from, until time.Time) []time.Time {
	all := []time.Time{from, until}
	add := func(at time.Time) {
		if at.After(from) && at.Before(until) {
			all = append(all, at)
		}
	}
	for _, one := range r.answers() {
		add(one.At)
		add(one.At.Add(r.window))
	}
	for _, one := range r.served {
		add(one.from)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// fill returns how full the window that ends at an instant is, as a part of the requests and of the tokens that are
// served then.
func (r result) fill(at time.Time) (requests, tokens float64) {
	served := r.served[0].limits
	for _, one := range r.served[1:] {
		if !one.from.After(at) {
			served = one.limits
		}
	}
	var used provider.Limits
	for _, one := range r.answers() {
		if !one.At.After(at) && at.Sub(one.At) < r.window {
			used.Requests++
			used.Tokens += one.Tokens()
		}
	}
	part := func(used, of int64) float64 { return min(1, float64(used)/float64(of)) }
	return part(used.Requests, served.Requests), part(used.Tokens, served.Tokens)
}

// waits returns the times in seconds from the arrival of each prompt of a kind to its answer in this run, by the
// record.
func (r result) waits(kind prompt.Kind) []float64 {
	ended := make(map[string]time.Time)
	for _, one := range r.answers() {
		ended[one.ID] = one.End
	}
	var waits []float64
	for _, o := range r.outcomes {
		end, is := ended[o.prompt.ID]
		if is && o.prompt.Kind == kind && o.state == answered && !o.arrived.IsZero() {
			waits = append(waits, end.Sub(o.arrived).Seconds())
		}
	}
	return waits
}
