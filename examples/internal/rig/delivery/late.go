package delivery

import (
	"fmt"
	"io"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
)

// lateTenant is the tenant that came last, when the mails of the others stood in line. For such tenants the line takes
// turns.
type lateTenant struct {
	Tenant         string  `json:"tenant"`
	Mails          int     `json:"mails"`
	Units          int64   `json:"units"`
	ArrivalS       float64 `json:"arrival_s"`         // when its first mail arrived
	WaitS          float64 `json:"wait_s"`            // the longest of its mails, from arrival to first start
	FirstComeWaitS float64 `json:"first_come_wait_s"` // the same, had all been served in the order of their arrival
}

// late compares the waits of the tenant that came after all others. It returns nil if no tenant did, if some of its
// mails have not started, or if firstCome returned nothing for them.
func (r result) late() *lateTenant {
	mails := latecomer(r.campaign)
	if len(mails) == 0 {
		return nil
	}
	starts, firstCome := firstStarts(r.granted), firstStarts(r.firstCome)
	late := &lateTenant{Tenant: mails[0].Tenant, Mails: len(mails), ArrivalS: r.since(r.outcomes[mails[0].ID].arrived)}
	for _, m := range mails {
		start, started := starts[m]
		would, known := firstCome[m]
		if !started || !known {
			return nil
		}
		arrived := r.outcomes[m.ID].arrived
		late.Units += m.Units()
		late.WaitS = max(late.WaitS, start.Sub(arrived).Seconds())
		late.FirstComeWaitS = max(late.FirstComeWaitS, would.Sub(arrived).Seconds())
	}
	return late
}

// latecomer returns the mails of the tenant whose first mail comes after the first mails of all others, if there is
// such a tenant.
func latecomer(c *campaign.Campaign) []*campaign.Mail {
	var tenants []string // in the order of their first mails
	mails := make(map[string][]*campaign.Mail)
	for _, m := range c.Mails {
		if mails[m.Tenant] == nil {
			tenants = append(tenants, m.Tenant)
		}
		mails[m.Tenant] = append(mails[m.Tenant], m)
	}
	n := len(tenants)
	if n < 2 || mails[tenants[n-1]][0].At == mails[tenants[n-2]][0].At {
		return nil
	}
	return mails[tenants[n-1]]
}

// firstStarts returns when each mail started, without later attempts. The argument has the earliest grants first.
func firstStarts(granted []grant) map[*campaign.Mail]time.Time {
	starts := make(map[*campaign.Mail]time.Time)
	for _, g := range granted {
		if _, before := starts[g.mail]; !before {
			starts[g.mail] = g.start
		}
	}
	return starts
}

func writeLate(w io.Writer, late *lateTenant) {
	if late == nil {
		return
	}
	table := report.NewTable(w)
	fmt.Fprintln(table, "late tenant\tmails\tunits\tfirst arrival\tlongest wait\tfirst come, first served")
	fmt.Fprintf(table, "%s\t%5d\t%5d\t%11.2f s\t%10.2f s\t%22.2f s\n",
		late.Tenant, late.Mails, late.Units, late.ArrivalS, late.WaitS, late.FirstComeWaitS)
	table.Flush()
	fmt.Fprintln(w)
}
