package throttle_test

import (
	stdcmp "cmp"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// heldPlace is what a grant holds of a running limit of a scope key, "scope:key", from its
// start until it has ended or its lease is over.
type heldPlace struct {
	id, name    string
	lease       time.Duration
	units       int64
	from, until time.Time
	sign        time.Time // the last of life
}

// leaseOf returns the lease of a running limit.
func leaseOf(limit throttle.Limit) time.Duration {
	return stdcmp.Or(limit.Lease, throttle.DefaultLease)
}

// holds notes a place that a grant occupies.
func (h *machine) holds(r throttle.Reservation, name string, units int64, limit throttle.Limit) {
	id, lease := r.Job.ID+" "+r.Job.Nonce, leaseOf(limit)
	h.places[id] = append(h.places[id],
		&heldPlace{id: id, name: name, lease: lease, units: units, from: r.Start, until: r.Start.Add(lease), sign: r.Start})
}

// forgetTwins takes a job's places out of the account that has another grant for the same
// instant: Done ends one of them, whichever, and the other one counts for a lease.
func (h *machine) forgetTwins(r throttle.Reservation) {
	own := r.Job.ID + " " + r.Job.Nonce
	for id, other := range h.grants {
		if id != own && other.Job.ID == r.Job.ID && other.Start.Equal(r.Start) {
			delete(h.places, own)
			delete(h.places, id)
		}
	}
}

// checkPlaces checks a start: at no instant from it on do more units run than a limit allows,
// by what was told to have ended or to run still, not by anybody's counters.
func (h *machine) checkPlaces(t *rapid.T, r throttle.Reservation, name string, limit throttle.Limit) {
	var all []*heldPlace
	for _, places := range h.places {
		for _, p := range places {
			if p.name == name && p.lease == leaseOf(limit) {
				all = append(all, p)
			}
		}
	}
	for _, at := range all {
		var units int64
		for _, p := range all {
			if !p.from.After(at.from) && p.until.After(at.from) {
				units += p.units
			}
		}
		if !at.from.Before(r.Start) && at.until.After(at.from) && units > limit.Units {
			t.Fatalf("%s at %s: %d units run at %s under %s %s", r.Job.ID, r.Start, units, at.from, name, limit)
		}
	}
}

// done ends a grant, perhaps one that has ended or whose lease is over.
func (h *machine) done(t *rapid.T) {
	id, granted := h.drawGrant(t)
	cooldown := time.Duration(rapid.SampledFrom([]int64{-1, -1, 0, 300}).Draw(t, "cools down for")) * time.Millisecond
	if cooldown >= 0 {
		granted.Cooldowns = map[string]time.Duration{"tenant": cooldown, throttle.Global: cooldown}
	}
	var got []bool
	if rapid.Bool().Draw(t, "and pull") {
		got = h.pullOnce(t, granted).Held
	} else {
		var gotErr error
		got, gotErr = h.redis.Done(h.now, granted)
		want, wantErr := h.model.Done(h.now, granted)
		same(t, "Done", got, want, gotErr, wantErr)
	}
	h.mustAgree(t, "Done", id, granted, got[0])
	for _, p := range h.places[id] {
		p.until = h.now
		if got[0] {
			p.until = h.now.Add(h.cooldownOf(p, granted))
		}
	}
	for _, p := range h.places[id] {
		p.id = "" // not reported again
	}
}

func (h *machine) cooldownOf(p *heldPlace, granted throttle.Reservation) time.Duration {
	scope, _, _ := strings.Cut(p.name, ":")
	if own, is := granted.Cooldowns[scope]; is {
		return own
	}
	for _, s := range h.scopes {
		if s.Name == scope {
			return s.Cooldown
		}
	}
	return 0
}

// renew has a grant run on.
func (h *machine) renew(t *rapid.T) {
	id, granted := h.drawGrant(t)
	if places := h.places[id]; len(places) > 0 && rapid.Bool().Draw(t, "before its lease is over") {
		if at := places[0].until.Add(-time.Duration(rapid.Int64Range(-20_000, 500_000).Draw(t, "before")) *
			time.Microsecond); at.After(h.now) {
			h.now = at
		}
	}
	got, gotErr := h.redis.Renew(h.now, granted)
	want, wantErr := h.model.Renew(h.now, granted)
	same(t, "Renew", got, want, gotErr, wantErr)
	h.mustAgree(t, "Renew", id, granted, got[0])
	for _, p := range h.places[id] {
		switch {
		case !got[0]:
			p.until, p.id = earlier(p.until, h.now), ""
		case h.now.Add(p.lease).After(p.until):
			p.until, p.sign = h.now.Add(p.lease), h.now
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// mustAgree compares what was told of a grant's places with the account: it held them while
// its lease was not over, the shortest of those that count it, and not when it had been over for two thousandths of it.
func (h *machine) mustAgree(t *rapid.T, call, id string, granted throttle.Reservation, held bool) {
	if granted.Lease == 0 {
		return
	}
	surely, perhaps := true, true
	for _, p := range h.places[id] {
		surely = surely && p.id != "" && h.now.Before(p.until) && h.now.Before(p.sign.Add(granted.Lease))
		perhaps = perhaps && p.id != "" && h.now.Before(p.until.Add(p.lease/500))
	}
	if len(h.places[id]) > 0 && (held && !perhaps || !held && surely) {
		t.Fatalf("%s of %s at %s: held %t, its lease is over at %s", call, id, h.now, held, h.places[id][0].until)
	}
}
