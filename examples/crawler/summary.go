package main

import (
	"cmp"
	"slices"
	"time"
)

// result is what a run has to say: the raw material of the summary. All instants
// are on Redis' clock.
type result struct {
	seeds            *seedList
	options          options
	by               string    // this process, as pages have it
	began            time.Time // when the workers started
	pages            []*page   // all that are known
	delays           map[string]time.Duration
	visits           []visit  // the earliest first
	accesses         []access // the earliest first
	recordOf         string   // who kept the accesses
	pauses           int
	pauseViolations  int
	robotsViolations int
	putBacks         int64
	inside           bool // Redis was inside the process: what is left is gone
	interrupted      bool
}

// summary is the report as numbers; its JSON is what -json prints.
type summary struct {
	Seeds string `json:"seeds"`
	Queue string `json:"queue"`

	Pages     int   `json:"pages"`     // fetched to their end
	Elsewhere int   `json:"elsewhere"` // of these, by an earlier run or another process
	Bytes     int64 `json:"bytes"`     // of all answers, by the record
	Hosts     int   `json:"hosts"`     // that were asked for anything
	Requests  int   `json:"requests"`  // by the record

	Redirected int `json:"redirected"`
	TooLarge   int `json:"too_large"`   // cut at the size cap
	Absent     int `json:"absent"`      // 4xx, too many redirects
	Disallowed int `json:"disallowed"`  // by robots.txt, never requested
	Blocked    int `json:"blocked"`     // no public address, never requested
	OverBudget int `json:"over_budget"` // of their host, never requested
	Failed     int `json:"failed"`      // no answer, or 5xx, to the last
	Left       int `json:"left"`        // not ended when the run was interrupted
	Unchanged  int `json:"unchanged"`   // start pages that were asked for again and answered by 304
	Larger     int `json:"larger"`      // than their charge; requested once more, for a larger one
	Duplicates int `json:"duplicates"`  // pages that were fetched once more without a reason
	Lost       int `json:"lost"`        // pages said to be fetched that the record does not show

	Pauses           int `json:"pauses"` // that hosts asked for
	PauseViolations  int `json:"pause_violations"`
	RobotsViolations int `json:"robots_violations"`
	WindowsOver      int `json:"windows_over_limit"` // in the record and in the grants

	PutBacks       int64   `json:"put_backs"`
	PutBacksPerJob float64 `json:"put_backs_per_job"` // a job is a request
	ChargedUnits   int64   `json:"charged_units"`     // kilobytes, by estimate
	SettledUnits   int64   `json:"settled_units"`     // kilobytes, in the end
	MakespanS      float64 `json:"makespan_s"`        // from the beginning to the last request

	Record          string     `json:"record"`             // who kept the record that is checked
	GrantToRequestS float64    `json:"grant_to_request_s"` // the longest time in between
	Limits          []limitUse `json:"limits"`
	ByHost          []hostRow  `json:"by_host"`
	Notes           []notice   `json:"pages_with_trouble"`

	Interrupted bool `json:"interrupted"`
	OK          bool `json:"ok"` // exit status 0

	inside bool
}

// limitUse is the worst use of one limit by two accounts of the same run.
type limitUse struct {
	Unit   string    `json:"unit"`
	Scope  string    `json:"scope"`
	Limit  string    `json:"limit"`
	Record windowUse `json:"record"`
	Grants windowUse `json:"grants"`
}

// windowUse is the fullest window of one limit.
type windowUse struct {
	WindowS float64 `json:"window_s"` // the window that was added up; 0 if it could not be
	Key     string  `json:"key"`
	Units   int64   `json:"units"`
	Over    int     `json:"over"`
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
func summarize(r result) summary {
	s := summary{
		Seeds: r.seeds.name, Queue: r.options.queue, Requests: len(r.accesses), Pauses: r.pauses,
		PauseViolations: r.pauseViolations, RobotsViolations: r.robotsViolations,
		PutBacks: r.putBacks, Record: r.recordOf, Interrupted: r.interrupted, inside: r.inside, ByHost: r.byHost(),
	}
	s.Hosts = len(s.ByHost)
	s.countPages(r)
	s.countAnswers(r)
	for _, v := range r.visits {
		s.ChargedUnits += v.charged
		s.SettledUnits += v.settled
	}
	if jobs := len(r.visits); jobs > 0 {
		s.PutBacksPerJob = float64(s.PutBacks) / float64(jobs)
	}
	s.checkWindows(r)
	s.OK = s.Left == 0 && s.Lost == 0 && s.Duplicates == 0 && s.WindowsOver == 0 && s.PauseViolations == 0 && s.RobotsViolations == 0
	return s
}

// countPages counts every page under how it ended.
func (s *summary) countPages(r result) {
	count := map[string]*int{
		endFetched: &s.Pages, endRedirected: &s.Redirected, endTooLarge: &s.TooLarge, endAbsent: &s.Absent,
		endForbidden: &s.Disallowed, endBlocked: &s.Blocked, endOverBudget: &s.OverBudget, endFailed: &s.Failed,
	}
	for _, p := range r.pages {
		if n := count[p.Ended]; n != nil && !p.Robots {
			*n++
		}
		if p.Ended == endFetched && p.By != r.by {
			s.Elsewhere++
		}
		if p.Again == endUnchanged {
			s.Unchanged++
		}
		if p.Larger {
			s.Larger++
		}
		if !p.over() {
			s.Left++
		}
		if !p.Robots && p.Ended != endFetched && p.Reason != "" {
			s.Notes = append(s.Notes, notice{Page: p.URL, Ended: p.Ended, Reason: p.Reason})
		}
	}
	slices.SortFunc(s.Notes, func(a, b notice) int { return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Page, b.Page)) })
}

// countAnswers compares the pages with the record.
func (s *summary) countAnswers(r result) {
	answers := make(map[string]int)
	for _, a := range r.accesses {
		s.Bytes += a.bytes
		if a.status == 200 && a.whole && !a.rules {
			answers[a.url]++
		}
		s.MakespanS = max(s.MakespanS, r.since(a.at))
	}
	for _, p := range r.pages {
		if p.Ended != endFetched {
			continue
		}
		n := answers[p.URL]
		if n == 0 && p.By == r.by {
			s.Lost++
		}
		if n > 1 && p.Again != endFetched && !p.Larger {
			s.Duplicates += n - 1
		}
	}
}

// byHost sums up the record and the charges for each host.
func (r result) byHost() []hostRow {
	rows := make(map[string]*hostRow)
	for _, a := range r.accesses {
		row := rows[a.host]
		if row == nil {
			row = &hostRow{Host: a.host, FirstS: r.since(a.at), DelayS: r.delays[a.host].Seconds()}
			rows[a.host] = row
		}
		row.Requests++
		row.Bytes += a.bytes
		row.LastS = r.since(a.at)
		if a.status == 200 && a.whole && !a.rules {
			row.Pages++
		}
		if !a.until.IsZero() {
			row.Pauses++
		}
	}
	for _, v := range r.visits {
		if row := rows[v.keys.host]; row != nil {
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

// since is an instant in seconds from the beginning.
func (r result) since(instant time.Time) float64 { return instant.Sub(r.began).Seconds() }
