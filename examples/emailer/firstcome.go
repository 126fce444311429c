package main

import (
	"slices"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// maxModelled is the largest campaign that is asked about: the model goes through
// all that it holds for each mail.
const maxModelled = 1000

// firstCome is when each mail would have started had all been served in the order
// of their arrival, whoever sends them: the model of the throttle gives each its
// start as it arrives, under the configured limits, also to a tenant whose limit grows,
// and without pauses. It leaves out mails that never fit, and second attempts.
// The earliest is first. There are none where the model cannot know what happened
// before, and of a campaign too large for it.
func firstCome(r result) []grant {
	if len(r.campaign.mails) > maxModelled || r.resumed() {
		return nil
	}
	model := throttletest.NewModel(r.law.scopes, throttle.Options{
		Lookahead: throttle.MaxWindow, // a calendar without end: nobody stands in line
		FairScope: throttle.Global,
		Grace:     throttle.MaxWindow, // each comes to its slot, so it counts as long as a start
	})
	var starts []grant
	for _, m := range r.campaign.mails {
		arrived := r.outcomes[m.id].arrived
		if arrived.IsZero() || !fits(m, r.law.scopes) {
			continue
		}
		slot, _ := model.Reserve(arrived, throttle.Job{ // it refuses nothing but deadlines
			ID: m.id, Weight: m.units(), Keys: map[string]string{scopeTenant: m.tenant, scopeDomain: m.domain},
		})
		starts = append(starts, grant{start: slot.Start, mail: m})
	}
	slices.SortStableFunc(starts, func(a, b grant) int { return a.start.Compare(b.start) })
	return starts
}

// resumed tells whether an earlier run began with this campaign.
func (r result) resumed() bool {
	for _, one := range r.outcomes {
		if one.earlier || !one.arrived.IsZero() && one.arrived.Before(r.began) {
			return true
		}
	}
	return false
}

// fits tells whether a mail may ever start.
func fits(m *mail, scopes []throttle.Scope) bool {
	for _, scope := range scopes {
		for _, limit := range scope.Limits {
			if limit.Units != throttle.Unlimited && limit.Units < m.units() {
				return false
			}
		}
	}
	return true
}
