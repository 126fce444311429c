package delivery

import (
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/account"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/campaign"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/check"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// result is the raw material of a run's summary. All instants are on Redis' clock.
type result struct {
	campaign    *campaign.Campaign
	queue       string
	law         check.Law
	atOnce      throttle.Limit // limits the mails that are being sent to one domain
	began       time.Time      // when the workers started and the first mails arrived
	outcomes    map[string]outcome
	granted     []grant // the earliest first, without those returned
	returned    []grant // grants whose charge was given back, since the server asked to wait
	pauses      []pause // the earliest first
	expected    expectations
	receipts    []smtp.Receipt
	recordOf    string // who kept the receipts
	putBacks    int64
	inside      bool    // Redis was inside the process: what is left is gone
	firstCome   []grant // the starts under first come, first served; empty if not known
	interrupted bool
	vanished    bool // asynq has no task any more for the mails that are left
}

// Summary is the report as numbers; its JSON is what -json prints.
type Summary struct {
	Campaign string `json:"campaign"`
	Queue    string `json:"queue"`
	Mails    int    `json:"mails"` // mails in the campaign
	Units    int64  `json:"units"` // their recipients

	Delivered        int `json:"delivered"`         // mails that the record shows as accepted
	DeliveredEarlier int `json:"delivered_earlier"` // mails that an earlier run delivered
	FailedForGood    int `json:"failed_for_good"`   // mails that the server refused with 5xx
	GivenUp          int `json:"given_up"`          // mails that ended without the server's word
	Deferred         int `json:"deferred"`          // mails that the server wanted later (4xx) at least once
	HeldUp           int `json:"held_up"`           // mails that came to a domain which took nothing, at least once
	Retries          int `json:"retries"`           // asynq's retries that the mails have spent
	Duplicates       int `json:"duplicates"`        // copies accepted beyond the first
	// mails said to be sent that the record does not show, or that vanished from asynq
	Lost int `json:"lost"`
	Left int `json:"left"` // mails not ended when the run was interrupted

	PutBacks       int64    `json:"put_backs"`
	PutBacksPerJob float64  `json:"put_backs_per_job"`
	MakespanS      float64  `json:"makespan_s"` // from the beginning to the last start
	OptimumS       float64  `json:"optimum_s"`
	MakespanRatio  *float64 `json:"makespan_ratio"` // null when no limit asks for any time

	Record         string            `json:"record"` // who kept the record that is checked
	GrantToReceipt report.Delay      `json:"grant_to_receipt"`
	WindowsOver    int               `json:"windows_over_limit"` // windows over a limit, in the record and in the grants
	Limits         []report.LimitUse `json:"limits"`
	AtOnce         report.AtOnce     `json:"at_once"` // mails on their way to one domain, in the record

	Forecast *forecast    `json:"forecast"` // null when nothing was planned, or not all of it has started
	Pauses   []pauseUse   `json:"pauses"`
	Raised   []raisedStep `json:"raised"`

	Late    *lateTenant `json:"late_tenant"` // null when none came after the others, or there is nothing to compare with
	Tenants []group     `json:"tenants"`
	Domains []group     `json:"domains"`
	Notes   []notice    `json:"mails_with_trouble"`

	Interrupted bool `json:"interrupted"`
	OK          bool `json:"ok"` // exit status 0

	inside bool
}

// group is the mails of one tenant or domain that started in this run.
type group struct {
	Key         string  `json:"key"`
	Mails       int     `json:"mails"`
	Units       int64   `json:"units"` // charged, for every attempt
	FirstStartS float64 `json:"first_start_s"`
	LastStartS  float64 `json:"last_start_s"`
	WaitP50S    float64 `json:"wait_p50_s"` // from arrival to the first start
	WaitP99S    float64 `json:"wait_p99_s"`
}

// notice is a mail that did not go through at once.
type notice struct {
	Mail   string `json:"mail"`
	Ended  string `json:"ended"` // delivered later, failed for good, given up, lost or left
	Reason string `json:"reason"`
}

// summarize works the result out.
func summarize(r result) Summary {
	s := Summary{
		Campaign: r.campaign.Name, Queue: r.queue, Mails: len(r.campaign.Mails), Units: r.campaign.Units(),
		PutBacks: r.putBacks, Record: r.recordOf, Interrupted: r.interrupted, inside: r.inside,
		Forecast: r.forecast(), Pauses: heeded(r.pauses, r.arrivals(), r.began), Raised: r.raised(),
		Late: r.late(), Tenants: r.groups(campaign.ScopeTenant), Domains: r.groups(campaign.ScopeDomain),
	}
	s.countMails(r)
	if jobs := s.Mails - r.endedEarlier(); jobs > 0 {
		s.PutBacksPerJob = float64(s.PutBacks) / float64(jobs)
	}
	s.measureMakespan(r)
	s.checkWindows(r)
	s.AtOnce = report.AtOnceOf(campaign.ScopeConnections, check.Running(receiptSpans(r.receipts, r.campaign), r.atOnce))
	s.OK = s.AtOnce.Over == 0 && s.Delivered+s.DeliveredEarlier+s.FailedForGood == s.Mails && s.Duplicates == 0 &&
		s.WindowsOver == 0 && disregarded(s.Pauses) == 0
	return s
}

// countMails puts every mail into exactly one of delivered, delivered earlier,
// failed for good, given up, lost and left.
func (s *Summary) countMails(r result) {
	copies := make(map[string]int)
	for _, receipt := range r.receipts {
		if receipt.Accepted() {
			copies[receipt.Mail]++
		}
	}
	for _, m := range r.campaign.Mails {
		one := r.outcomes[m.ID]
		if one.deferred > 0 {
			s.Deferred++
		}
		if one.held > 0 {
			s.HeldUp++
		}
		s.Retries += one.retried
		s.Duplicates += max(0, copies[m.ID]-1)
		ended := s.countMail(one, copies[m.ID] > 0, r.vanished)
		if one.reason != "" || ended == "lost" {
			s.Notes = append(s.Notes, notice{Mail: m.ID, Ended: ended, Reason: one.reason})
		}
	}
}

// countMail counts one mail, and names how it ended for a notice.
func (s *Summary) countMail(one outcome, received, vanished bool) string {
	switch {
	case received:
		s.Delivered++
		return "delivered later"
	case one.state == delivered && one.earlier:
		s.DeliveredEarlier++
		return "delivered earlier"
	case one.state == refused:
		s.FailedForGood++
		return "failed for good"
	case one.state == gaveUp:
		s.GivenUp++
		return "given up"
	case one.state == waiting && !vanished:
		s.Left++
		return "left"
	}
	s.Lost++
	return "lost"
}

func (r result) endedEarlier() int {
	n := 0
	for _, one := range r.outcomes {
		if one.earlier {
			n++
		}
	}
	return n
}

func (s *Summary) measureMakespan(r result) {
	if len(r.granted) == 0 {
		return
	}
	s.MakespanS = r.since(r.granted[len(r.granted)-1].start)
	if best := check.Optimum(grantEvents(r.granted), r.law).Seconds(); best > 0 {
		ratio := s.MakespanS / best
		s.OptimumS, s.MakespanRatio = best, &ratio
	}
}

func (s *Summary) checkWindows(r result) {
	spread := account.Spread(r.arrivals())
	s.GrantToReceipt = report.DelayOf(spread, rig.MarginOf(r.law.Scopes))
	record := check.Limits(receiptEvents(r.receipts, r.campaign), r.law, spread)
	granted := check.Limits(grantEvents(r.granted), r.law, 0)
	s.Limits, s.WindowsOver = report.Uses("", 1, record, granted)
	for i := range s.Limits {
		s.Limits[i].Units = &granted[i].Limit.Units
	}
	s.Limits = slices.DeleteFunc(s.Limits, func(l report.LimitUse) bool {
		return l.Record.Period == report.None && l.Grants.Period == report.None
	})
}

// since returns the time from the beginning of the run to an instant, in seconds.
func (r result) since(instant time.Time) float64 { return instant.Sub(r.began).Seconds() }

// end returns the last start, or the beginning if there was none.
func (r result) end() time.Time {
	if n := len(r.granted); n > 0 {
		return r.granted[n-1].start
	}
	return r.began
}

// arrivals returns the attempts that the record shows, with their grants.
func (r result) arrivals() []arrival {
	return arrivals(slices.Concat(r.granted, r.returned), r.receipts)
}

func grantEvents(granted []grant) []check.Event {
	events := make([]check.Event, 0, len(granted))
	for _, g := range granted {
		events = append(events, check.Event{At: g.start.UnixMicro(), Units: g.mail.Units(), Of: g.mail})
	}
	return events
}

// receiptEvents counts the recipients that the server was asked for, accepted or not: a refused attempt used its quota
// too. Attempts to a domain that took nothing are left out, because their charge is given back.
func receiptEvents(receipts []smtp.Receipt, c *campaign.Campaign) []check.Event {
	events := make([]check.Event, 0, len(receipts))
	for _, r := range receipts {
		if m := c.ByID[r.Mail]; m != nil && !r.Closed {
			events = append(events, check.Event{At: r.At.UnixMicro(), Units: int64(r.Recipients), Of: m})
		}
	}
	return events
}

// receiptSpans returns, for each attempt, the time from the beginning of the mail to the server's last word.
func receiptSpans(receipts []smtp.Receipt, c *campaign.Campaign) []check.Span {
	spans := make([]check.Span, 0, len(receipts))
	for _, r := range receipts {
		if m := c.ByID[r.Mail]; m != nil {
			spans = append(spans, check.Span{At: r.Began.UnixMicro(), End: r.At.UnixMicro(), Units: 1, Key: m.Domain})
		}
	}
	return spans
}

// groups sums up the started mails by their key in a scope.
func (r result) groups(scope string) []group {
	groups := make(map[string]*group)
	waits := make(map[string][]time.Duration)
	started := make(map[*campaign.Mail]bool)
	for _, g := range r.granted {
		key, at := g.mail.Key(scope), r.since(g.start)
		one := groups[key]
		if one == nil {
			one = &group{Key: key, FirstStartS: at}
			groups[key] = one
		}
		one.Units += g.mail.Units()
		one.LastStartS = at
		if started[g.mail] {
			continue
		}
		started[g.mail] = true
		one.Mails++
		if arrived := r.outcomes[g.mail.ID].arrived; !arrived.IsZero() {
			waits[key] = append(waits[key], max(0, g.start.Sub(arrived)))
		}
	}
	all := make([]group, 0, len(groups))
	for key, one := range groups {
		one.WaitP50S = account.Percentile(waits[key], 50).Seconds()
		one.WaitP99S = account.Percentile(waits[key], 99).Seconds()
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b group) int { return strings.Compare(a.Key, b.Key) })
	return all
}
