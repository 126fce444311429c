package crawl

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/frontier"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// samplePages returns the pages of sampleResult, and some pages that were never requested.
func samplePages(r Result) []*frontier.Page {
	return []*frontier.Page{
		{URL: "http://a/", Ended: frontier.EndFetched, Again: frontier.EndUnchanged, Second: true},
		{URL: "http://b/", Ended: frontier.EndFetched},
		{URL: "http://b/old", Ended: frontier.EndFetched, By: "another"},
		{URL: "http://b/no", Ended: frontier.EndForbidden, Reason: "by robots.txt"},
		{URL: "http://b/robots.txt", Ended: frontier.EndFailed, Reason: "the host answered 500", Robots: true},
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	r := sampleResult(t)
	r.Pages = samplePages(r)
	r.Visits = []Visit{{url: "http://a/", charged: 64, settled: 5, Keys: Keys{Host: "a"}, Start: r.Accesses[0].At}}
	r.putBacks = 3
	r.connections.Limit = throttle.Running(1)
	s := summarize(r)
	if !s.OK || s.Pages != 3 || s.Elsewhere != 1 || s.Unchanged != 1 || s.Disallowed != 1 || s.Failed != 0 ||
		s.Left != 0 || len(s.Notes) != 1 {
		t.Errorf("got %+v", s)
	}
	if s.Hosts != 2 || s.Requests != 4 || s.Bytes != 95_000 || s.ChargedUnits != 64 || s.SettledUnits != 5 ||
		s.PutBacksPerJob != 3 {
		t.Errorf("got %+v", s)
	}
	if a := s.ByHost[0]; a.Requests != 2 || a.Pages != 1 || a.Pauses != 1 || a.Charged != 64 || a.FirstS != 0.01 ||
		a.LastS != 0.7 {
		t.Errorf("got %+v", a)
	}
}

// The report names whatever is not well, and is not OK.
func TestSummarizeTellsWhatIsNotWell(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*Result)
		want func(Summary) bool
	}{
		{"left", func(r *Result) { r.Pages[1].Ended = "" }, func(s Summary) bool { return s.Left == 1 }},
		{"second turn left", func(r *Result) { r.Pages[0].Again = "" }, func(s Summary) bool { return s.Left == 1 }},
		{"lost", func(r *Result) { r.Pages[1].URL = "http://b/lost" }, func(s Summary) bool { return s.Lost == 1 }},
		{"duplicate", func(r *Result) { r.Accesses = append(r.Accesses, r.Accesses[2]) },
			func(s Summary) bool { return s.Duplicates == 1 }},
		{"pause", func(r *Result) { r.pauseViolations = 1 }, func(s Summary) bool { return s.PauseViolations == 1 }},
		{"robots.txt", func(r *Result) { r.robotsViolations = 1 }, func(s Summary) bool { return s.RobotsViolations == 1 }},
		{"Crawl-delay", func(r *Result) { r.Accesses[3].At = r.Accesses[2].At.Add(time.Second) },
			func(s Summary) bool { return s.WindowsOver == 1 }},
		{"kilobytes", func(r *Result) { r.Accesses[2].Bytes = 570 * fetch.Kilobyte },
			func(s Summary) bool { return s.WindowsOver == 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := sampleResult(t)
			r.Pages = samplePages(r)
			row.do(&r)
			slices.SortFunc(r.Accesses, func(a, b site.Access) int { return a.At.Compare(b.At) })
			s := summarize(r)
			var report bytes.Buffer
			writeReport(&report, s)
			if s.OK || !row.want(s) || !strings.Contains(report.String(), "NOT all is well") {
				t.Errorf("got %+v\n%s", s, report.String())
			}
		})
	}
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(summarize(sampleResult(t))); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pages", "bytes", "hosts", "windows_over_limit", "robots_violations",
		"pause_violations", "put_backs_per_job", "settled_units", "charged_units"} {
		if _, isNumber := fields[name].(float64); !isNumber {
			t.Errorf("%s is %v, want a number", name, fields[name])
		}
	}
}
