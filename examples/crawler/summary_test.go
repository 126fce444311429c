package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// samplePages are those of sampleResult, and some that were never requested.
func samplePages(r result) []*page {
	return []*page{
		{URL: "http://a/", Ended: endFetched, Again: endUnchanged, Second: true},
		{URL: "http://b/", Ended: endFetched},
		{URL: "http://b/old", Ended: endFetched, By: "another"},
		{URL: "http://b/no", Ended: endForbidden, Reason: "by robots.txt"},
		{URL: "http://b/robots.txt", Ended: endFailed, Reason: "the host answered 500", Robots: true},
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	r := sampleResult(t)
	r.pages = samplePages(r)
	r.visits = []visit{{url: "http://a/", charged: 64, settled: 5, keys: keys{host: "a"}, start: r.accesses[0].at}}
	r.putBacks = 3
	s := summarize(r)
	if !s.OK || s.Pages != 3 || s.Elsewhere != 1 || s.Unchanged != 1 || s.Disallowed != 1 || s.Failed != 0 || s.Left != 0 || len(s.Notes) != 1 {
		t.Errorf("got %+v", s)
	}
	if s.Hosts != 2 || s.Requests != 4 || s.Bytes != 95_000 || s.ChargedUnits != 64 || s.SettledUnits != 5 || s.PutBacksPerJob != 3 {
		t.Errorf("got %+v", s)
	}
	if a := s.ByHost[0]; a.Requests != 2 || a.Pages != 1 || a.Pauses != 1 || a.Charged != 64 || a.FirstS != 0.01 || a.LastS != 0.7 {
		t.Errorf("got %+v", a)
	}
}

// Whatever is not well is told, and is not OK.
func TestSummarizeTellsWhatIsNotWell(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*result)
		want func(summary) bool
	}{
		{"left", func(r *result) { r.pages[1].Ended = "" }, func(s summary) bool { return s.Left == 1 }},
		{"second turn left", func(r *result) { r.pages[0].Again = "" }, func(s summary) bool { return s.Left == 1 }},
		{"lost", func(r *result) { r.pages[1].URL = "http://b/lost" }, func(s summary) bool { return s.Lost == 1 }},
		{"duplicate", func(r *result) { r.accesses = append(r.accesses, r.accesses[2]) }, func(s summary) bool { return s.Duplicates == 1 }},
		{"pause", func(r *result) { r.pauseViolations = 1 }, func(s summary) bool { return s.PauseViolations == 1 }},
		{"robots.txt", func(r *result) { r.robotsViolations = 1 }, func(s summary) bool { return s.RobotsViolations == 1 }},
		{"Crawl-delay", func(r *result) { r.accesses[3].at = r.accesses[2].at.Add(time.Second) }, func(s summary) bool { return s.WindowsOver == 1 }},
		{"kilobytes", func(r *result) { r.accesses[2].bytes = 570 * kilobyte }, func(s summary) bool { return s.WindowsOver == 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := sampleResult(t)
			r.pages = samplePages(r)
			row.do(&r)
			slices.SortFunc(r.accesses, func(a, b access) int { return a.at.Compare(b.at) })
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
	if err := writeJSON(&out, summarize(sampleResult(t))); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pages", "bytes", "hosts", "windows_over_limit", "robots_violations", "pause_violations", "put_backs_per_job", "settled_units", "charged_units"} {
		if _, isNumber := fields[name].(float64); !isNumber {
			t.Errorf("%s is %v, want a number", name, fields[name])
		}
	}
}
