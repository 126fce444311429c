package main

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

func TestBundledCampaignHasATenantThatWarmsUp(t *testing.T) {
	t.Parallel()
	c, err := campaign.Open("")
	if err != nil {
		t.Fatal(err)
	}
	w, err := campaign.ParseWarmup(defaultWarmup)
	if err != nil || !w.Among(c) {
		t.Errorf("%+v, %v: no mails of it", w, err)
	}
	for _, m := range c.Mails {
		if m.Tenant == w.Tenant && m.Units() > w.Steps[0].Limit.Units {
			t.Errorf("mail %s does not fit the first limit", m.ID)
		}
	}
}
