package crawl

import (
	"cmp"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/report"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Result is the raw material of a run's summary. All instants are on Redis' clock.
type Result struct {
	seeds            string // the seeds' file, or that they are the bundled ones
	queue            string
	Requests         []throttle.Scope // limits
	kilobytes        []throttle.Scope // limits
	connections      Connections      // a limit
	by               string           // this process, as pages have it
	began            time.Time        // when the workers started
	Pages            []*frontier.Page // all that are known
	delays           map[string]time.Duration
	Visits           []Visit       // the earliest first
	Accesses         []site.Access // the earliest first
	recordOf         string        // who kept the accesses
	pauses           int
	pauseViolations  int
	robotsViolations int
	putBacks         int64
	inside           bool // Redis was inside the process: what is left is gone
	interrupted      bool
}

// Summary is the report as numbers; its JSON is what -json prints.
type Summary struct {
	Seeds string `json:"seeds"`
	Queue string `json:"queue"`

	Pages     int   `json:"pages"`     // fetched to their end
	Elsewhere int   `json:"elsewhere"` // pages of these that an earlier run or another process fetched
	Bytes     int64 `json:"bytes"`     // bytes of all answers, by the record
	Hosts     int   `json:"hosts"`     // hosts that got a request
	Requests  int   `json:"requests"`  // requests, by the record

	Redirected int `json:"redirected"`
	TooLarge   int `json:"too_large"`   // cut at the size cap
	Absent     int `json:"absent"`      // 4xx, too many redirects
	Disallowed int `json:"disallowed"`  // forbidden by robots.txt, never requested
	Blocked    int `json:"blocked"`     // no public address, never requested
	OverBudget int `json:"over_budget"` // more than their host's budget, never requested
	Failed     int `json:"failed"`      // no answer, or 5xx, to the last
	Left       int `json:"left"`        // not ended when the run was interrupted
	Unchanged  int `json:"unchanged"`   // start pages that were asked for again and answered by 304
	Larger     int `json:"larger"`      // than their charge; requested once more, for a larger one
	Duplicates int `json:"duplicates"`  // pages that were fetched once more without a reason
	Lost       int `json:"lost"`        // pages said to be fetched that the record does not show

	Pauses           int `json:"pauses"` // pauses that hosts asked for
	PauseViolations  int `json:"pause_violations"`
	RobotsViolations int `json:"robots_violations"`
	WindowsOver      int `json:"windows_over_limit"` // windows over a limit, in the record and in the grants

	PutBacks       int64   `json:"put_backs"`
	PutBacksPerJob float64 `json:"put_backs_per_job"` // a job is a request
	ChargedUnits   int64   `json:"charged_units"`     // kilobytes, by estimate
	SettledUnits   int64   `json:"settled_units"`     // kilobytes, in the end
	MakespanS      float64 `json:"makespan_s"`        // from the beginning to the last request

	Record         string            `json:"record"` // who kept the record that is checked
	GrantToRequest report.Delay      `json:"grant_to_request"`
	Limits         []report.LimitUse `json:"limits"`
	AtOnce         report.AtOnce     `json:"at_once"` // requests under way to one address, in the record
	ByHost         []hostRow         `json:"by_host"`
	Notes          []notice          `json:"pages_with_trouble"`

	Interrupted bool `json:"interrupted"`
	OK          bool `json:"ok"` // exit status 0

	inside bool
}

// hostRow is what happened at one host in this run.
type hostRow struct {
	Host     string  `json:"host"`
	Requests int     `json:"requests"`
	Pages    int     `json:"pages"` // answered by 200 and sent to their end
	Bytes    int64   `json:"bytes"`
	Charged  int64   `json:"charged"` // kilobytes
	Settled  int64   `json:"settled"` // kilobytes
	Pauses   int     `json:"pauses"`
	DelayS   float64 `json:"crawl_delay_s"`
	FirstS   float64 `json:"first_s"`
	LastS    float64 `json:"last_s"`
}

// notice is a page that was not fetched.
type notice struct {
	Page   string `json:"page"`
	Ended  string `json:"ended"`
	Reason string `json:"reason"`
}

// summarize works the result out.
func summarize(r Result) Summary {
	s := Summary{
		Seeds: r.seeds, Queue: r.queue, Requests: len(r.Accesses), Pauses: r.pauses,
		PauseViolations: r.pauseViolations, RobotsViolations: r.robotsViolations,
		PutBacks: r.putBacks, Record: r.recordOf, Interrupted: r.interrupted, inside: r.inside, ByHost: r.byHost(),
	}
	s.Hosts = len(s.ByHost)
	s.countPages(r)
	s.countAnswers(r)
	for _, v := range r.Visits {
		s.ChargedUnits += v.charged
		s.SettledUnits += v.settled
	}
	if jobs := len(r.Visits); jobs > 0 {
		s.PutBacksPerJob = float64(s.PutBacks) / float64(jobs)
	}
	s.checkWindows(r)
	s.AtOnce = report.AtOnceOf(ScopeConnections, r.connections.Check(r.Accesses))
	s.OK = s.AtOnce.Over == 0 && s.Left == 0 && s.Lost == 0 && s.Duplicates == 0 && s.WindowsOver == 0 &&
		s.PauseViolations == 0 && s.RobotsViolations == 0
	return s
}

// countPages counts every page under how it ended.
func (s *Summary) countPages(r Result) {
	count := map[string]*int{
		frontier.EndFetched: &s.Pages, frontier.EndRedirected: &s.Redirected, frontier.EndTooLarge: &s.TooLarge,
		frontier.EndAbsent:    &s.Absent,
		frontier.EndForbidden: &s.Disallowed, frontier.EndBlocked: &s.Blocked,
		frontier.EndOverBudget: &s.OverBudget, frontier.EndFailed: &s.Failed,
	}
	for _, p := range r.Pages {
		if n := count[p.Ended]; n != nil && !p.Robots {
			*n++
		}
		if p.Ended == frontier.EndFetched && p.By != r.by {
			s.Elsewhere++
		}
		if p.Again == frontier.EndUnchanged {
			s.Unchanged++
		}
		if p.Larger {
			s.Larger++
		}
		if !p.Over() {
			s.Left++
		}
		if !p.Robots && p.Ended != frontier.EndFetched && p.Reason != "" {
			s.Notes = append(s.Notes, notice{Page: p.URL, Ended: p.Ended, Reason: p.Reason})
		}
	}
	slices.SortFunc(s.Notes,
		func(a, b notice) int { return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Page, b.Page)) })
}

// countAnswers compares the pages with the record.
func (s *Summary) countAnswers(r Result) {
	answers := make(map[string]int)
	for _, a := range r.Accesses {
		s.Bytes += a.Bytes
		if a.Status == 200 && a.Whole && !a.Rules {
			answers[a.URL]++
		}
		s.MakespanS = max(s.MakespanS, r.since(a.At))
	}
	for _, p := range r.Pages {
		if p.Ended != frontier.EndFetched {
			continue
		}
		n := answers[p.URL]
		if n == 0 && p.By == r.by {
			s.Lost++
		}
		if n > 1 && p.Again != frontier.EndFetched && !p.Larger {
			s.Duplicates += n - 1
		}
	}
}

// byHost sums up the record and the charges for each host.
func (r Result) byHost() []hostRow {
	rows := make(map[string]*hostRow)
	for _, a := range r.Accesses {
		row := rows[a.Host]
		if row == nil {
			row = &hostRow{Host: a.Host, FirstS: r.since(a.At), DelayS: r.delays[a.Host].Seconds()}
			rows[a.Host] = row
		}
		row.Requests++
		row.Bytes += a.Bytes
		row.LastS = r.since(a.At)
		if a.Status == 200 && a.Whole && !a.Rules {
			row.Pages++
		}
		if !a.Until.IsZero() {
			row.Pauses++
		}
	}
	for _, v := range r.Visits {
		if row := rows[v.Keys.Host]; row != nil {
			row.Charged += v.charged
			row.Settled += v.settled
		}
	}
	all := make([]hostRow, 0, len(rows))
	for _, row := range rows {
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b hostRow) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// since returns the time from the beginning of the run to an instant, in seconds.
func (r Result) since(instant time.Time) float64 { return instant.Sub(r.began).Seconds() }
