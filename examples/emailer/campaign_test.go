package main

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
)

func TestBundledCampaignHasTheTenantOfTheRaise(t *testing.T) {
	t.Parallel()
	c, err := campaign.Open("")
	if err != nil {
		t.Fatal(err)
	}
	raise, err := campaign.ParseRaise(defaultRaise)
	if err != nil || !raise.Among(c) {
		t.Errorf("%+v, %v: no mails of it", raise, err)
	}
	for _, m := range c.Mails {
		if m.Tenant == raise.Tenant && m.Units() > raise.Steps[0].Limit.Units {
			t.Errorf("mail %s does not fit the first limit", m.ID)
		}
	}
}
