package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/crawl"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// runJSON runs the program with -json and reads what it printed.
func runJSON(ctx context.Context, t *testing.T, args ...string) (status int, s crawl.Summary, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	status = run(ctx, append(args, "-json"), &out, &log)
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("status %d, standard output is not one JSON object: %v\n%s\n%s", status, err, out.String(), log.String())
	}
	return status, s, log.String()
}

// A crawl of the whole bundled web: each host has shown the case that it exists for, and no forbidden page was
// requested.
func TestRunCrawlsTheBundledWeb(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "run.svg")
	status, s, log := runJSON(t.Context(), t, "-plot", picture)
	if status != rig.ExitOK || !s.OK {
		t.Fatalf("status %d\n%s", status, log)
	}
	if s.PauseViolations != 0 || s.RobotsViolations != 0 || s.WindowsOver != 0 || s.Duplicates != 0 ||
		s.Lost != 0 || s.Left != 0 {
		t.Errorf("got %+v", s)
	}
	if s.Hosts != 11 || s.Pages != 153 || s.Unchanged != 10 || s.Redirected != 10 || s.TooLarge != 3 || s.Absent != 2 ||
		s.Disallowed != 7 || s.Blocked != 4 || s.OverBudget != 10 || s.Failed != 0 {
		t.Errorf("got %+v", s)
	}
	if s.Pauses != 4 || s.AtOnce.Most != 1 || s.AtOnce.Over != 0 || s.Record != "servers' log" || s.Bytes < 1<<20 ||
		s.SettledUnits >= s.ChargedUnits || s.SettledUnits == 0 || s.PutBacks == 0 {
		t.Errorf("got %+v", s)
	}
	if s.PutBacksPerJob > 2 && longtest.Full() { // a task that comes late is put back once more
		t.Errorf("put back %v times per page", s.PutBacksPerJob)
	}
	// While the delay is within the margin, the check adds up whole windows of the servers' log.
	if s.GrantToRequest.Slow() && longtest.Full() {
		t.Errorf("grant to request %s", s.GrantToRequest)
	}
	if s.MakespanS < 14 { // dogwood.example asks for a second between its 16 requests
		t.Errorf("makespan %v: a Crawl-delay was not kept", s.MakespanS)
	}
	if !strings.Contains(log, "pages done") || !strings.Contains(log, "every limit, pause and robots.txt was kept") {
		t.Errorf("standard error lacks progress or report:\n%s", log)
	}
	if _, err := os.Stat(picture); err != nil {
		t.Error(err)
	}
}

// someDone matches a line of progress when some pages are done, whenever that is. The web takes
// 14 seconds at least: dogwood.example asks for a second between its requests.
var someDone = regexp.MustCompile(` s +([3-9]|\d\d+) of +\d+ pages done`)

// cancelWriter cancels a run of which some pages are done.
type cancelWriter struct {
	mu     sync.Mutex
	text   bytes.Buffer
	cancel context.CancelFunc
}

func (w *cancelWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if someDone.Match(w.text.Bytes()) {
		w.cancel()
	}
	return len(p), nil
}

func (w *cancelWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// interrupted runs the program until some pages are done.
func interrupted(t *testing.T, args ...string) (crawl.Summary, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &cancelWriter{cancel: cancel}
	var out bytes.Buffer
	if status := run(ctx, append(args, "-json"), &out, log); status != rig.ExitNotAll {
		t.Fatalf("status %d, want %d\n%s", status, rig.ExitNotAll, log)
	}
	var s crawl.Summary
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s, log.String()
}

func TestInterruptInsideSaysThatTheRestIsGone(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s, log := interrupted(t)
	if took := time.Since(began); longtest.Full() && took > 10*time.Second {
		t.Errorf("took %s: the sleepers held the end up", took)
	}
	if !s.Interrupted || s.OK || s.Left == 0 || s.Pages == 0 || s.Lost != 0 || s.PauseViolations != 0 ||
		s.RobotsViolations != 0 {
		t.Errorf("got %+v", s)
	}
	if !strings.Contains(log, "gone with the Redis inside this process") {
		t.Errorf("standard error does not say that the rest is gone:\n%s", log)
	}
}

// The second run, on the same Redis, continues with the pages that the first one left, and requests nothing twice.
func TestSecondRunGoesOn(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"miniredis": func(t *testing.T) string { return newRedis(t).Options().Addr },
		"redis":     func(t *testing.T) string { return redistest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-redis", start(t), "-host-pages", "8"}
			first, log := interrupted(t, args...)
			expectLeft(t, first, log)
			status, second, log := runJSON(t.Context(), t, args...)
			expectWentOn(t, first, status, second, log)
			status, third, _ := runJSON(t.Context(), t, args...)
			if status != rig.ExitOK || third.Elsewhere != second.Pages || third.Requests != 0 || third.PutBacksPerJob != 0 {
				t.Errorf("third run: status %d, %+v", status, third)
			}
		})
	}
}

// expectLeft compares an interrupted run's summary with its log.
func expectLeft(t *testing.T, first crawl.Summary, log string) {
	t.Helper()
	if !first.Interrupted || first.Left == 0 || first.Pages == 0 || first.Lost != 0 ||
		!strings.Contains(log, "run it again with the same -redis") {
		t.Fatalf("first run: %+v\n%s", first, log)
	}
}

// expectWentOn compares the second run with the first. Each has a web of its own, so a page that was sent again is in
// the sum of their records.
func expectWentOn(t *testing.T, first crawl.Summary, status int, second crawl.Summary, log string) {
	t.Helper()
	if status != rig.ExitOK || second.Elsewhere != first.Pages || second.Pages <= first.Pages ||
		second.Duplicates != 0 || second.Lost != 0 || second.RobotsViolations != 0 {
		t.Errorf("second run: status %d\nfirst %+v\nsecond %+v\n%s", status, first, second, log)
	}
	sent := -1 // cedar.example's rules.txt
	for _, row := range append(first.ByHost, second.ByHost...) {
		sent += row.Pages
	}
	if sent != second.Pages {
		t.Errorf("%d pages were sent in both runs, for %d", sent, second.Pages)
	}
}

func TestRunRefusesBadInput(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken.csv")
	if err := os.WriteFile(broken, []byte("customer,url\nacme,alder.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-colour", "red"}, "flag provided but not defined: -colour"},
		{[]string{"seeds.csv"}, `unexpected argument "seeds.csv"`},
		{[]string{"-workers", "0"}, "-workers 0 is not between 1 and 1000"},
		{[]string{"-workers", "many"}, "invalid value"},
		{[]string{"-plot", "picture.gif"}, "ends neither in .svg nor in .png"},
		{[]string{"-plot", "no/such/folder/picture.svg"}, "there is no folder no/such/folder"},
		{[]string{"-requests", "global=0/1s"}, "-requests: scope global: under 0/1s nothing ever starts"},
		{[]string{"-requests", "host=fast"}, "-requests: scope host"},
		{[]string{"-kilobytes", "tenant=1/1s"}, `-kilobytes: no scope "tenant"`},
		{[]string{"-kilobytes", "host=100/1s"}, "the host limit 100/1s is less than the 544 KB"},
		{[]string{"-max-kb", "10"}, "-max-kb 10 is not between 500"},
		{[]string{"-depth", "-1"}, "-depth -1"},
		{[]string{"-host-pages", "0"}, "-host-pages 0"},
		{[]string{"-per-host", "0"}, "-per-host 0 is not between 1 and 1000"},
		{[]string{"-cooldown", "-1"}, "-cooldown -1 is not between 0 and 100"},
		{[]string{"-cooldown", "NaN"}, "-cooldown NaN is not between 0 and 100"},
		{[]string{"-timeout", "1h"}, "-timeout 1h0m0s"},
		{[]string{"-agent", "1/2"}, `-agent "1/2" does not begin with a name`},
		{[]string{"-seeds", "no-such-file.csv"}, "no-such-file.csv"},
		{[]string{"-seeds", broken}, "line 2: url"},
		{[]string{"-redis", "127.0.0.1:1"}, "redis: "},
		{[]string{"-redis", "redis-cluster://127.0.0.1:1,127.0.0.1:2"}, "redis: "},
		{[]string{"-redis", "redis-sentinel://127.0.0.1:1?master=m"}, "redis: "},
		{[]string{"-redis", "redis://me:hunter2@127.0.0.1/x"},
			"-redis: connect: redis URL: path: want the number of a database"},
		{[]string{"-queue", " "}, "-queue"},
	} {
		var out, log bytes.Buffer
		if status := run(t.Context(), row.args, &out, &log); status != rig.ExitUsage ||
			!strings.Contains(log.String(), row.want) || out.Len() > 0 {
			t.Errorf("%q: status %d, want %d with %q\n%s", row.args, status, rig.ExitUsage, row.want, log.String())
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &out, &log); status != rig.ExitOK {
		t.Errorf("status %d", status)
	}
	for _, flag := range []string{"-seeds", "-requests", "-kilobytes", "-redis", "-agent", "-depth", "-host-pages",
		"-per-host", "-cooldown", "-max-kb", "-timeout", "-plot", "-json", "-workers", "-queue", "-v"} {
		if !strings.Contains(log.String(), "  "+flag) {
			t.Errorf("help lacks %s:\n%s", flag, log.String())
		}
	}
}
