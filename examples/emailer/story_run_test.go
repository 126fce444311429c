package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/delivery"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/smtp"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const csvHeader = "id,at,tenant,from,to,subject,body\n"

// writeCampaign writes n mails of two tenants, besides one to nobody and one
// to a full mailbox, and returns the file.
func writeCampaign(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString(csvHeader)
	for i := range n {
		to := fmt.Sprintf("a%d@hill.example", i)
		if i%3 == 0 {
			to += fmt.Sprintf(" b%d@hill.example c%d@hill.example", i, i)
		}
		fmt.Fprintf(&text, "m%03d,0s,tenant%d,me@acme.example,%s,Hi,Text\n", i, i%2, to)
	}
	text.WriteString("none,0s,tenant0,me@acme.example,nobody@lake.example,Hi,Text\n")
	text.WriteString("full,100ms,tenant1,me@acme.example,full@lake.example,Hi,Text\n")
	path := filepath.Join(t.TempDir(), "campaign.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runJSON runs the program with -json and reads what it printed.
func runJSON(ctx context.Context, t *testing.T, args ...string) (status int, s delivery.Summary, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	status = run(ctx, append(args, "-json"), &out, &log)
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("status %d, standard output is not one JSON object: %v\n%s\n%s", status, err, out.String(), log.String())
	}
	return status, s, log.String()
}

func TestRunDeliversEveryMailOnce(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "run.svg")
	status, s, log := runJSON(t.Context(), t, "-campaign", writeCampaign(t, 40),
		"-limits", "global=10/500ms,200/3s;tenant=8/500ms;domain=9/500ms", "-plot", picture)
	if status != rig.ExitOK || !s.OK {
		t.Fatalf("status %d\n%s", status, log)
	}
	if s.Mails != 42 || s.Delivered != 41 || s.FailedForGood != 1 || s.Deferred != 1 || s.Duplicates != 0 ||
		s.Lost != 0 || s.Left != 0 || s.GivenUp != 0 {
		t.Errorf("got %+v", s)
	}
	if s.WindowsOver != 0 || s.Record != "SMTP server" || len(s.Limits) != 4 || len(s.Tenants) != 2 ||
		len(s.Domains) != 2 {
		t.Errorf("got %+v", s)
	}
	for _, l := range s.Limits { // whole windows, by the server's clock
		if s.GrantToReceipt.Slow() {
			inFull(t, "grant to receipt %s", s.GrantToReceipt)
			break
		}
		if limits, err := throttle.ParseLimits(l.Limit); err != nil || l.Record.WindowS < limits[0].Window.Seconds() {
			t.Errorf("%s %s: windows of %g s of the record were added up, want whole ones; %v", l.Scope, l.Limit,
				l.Record.WindowS, err)
		}
	}
	if s.AtOnce.Most < 1 || s.AtOnce.Most > 2 || s.AtOnce.Over != 0 || s.AtOnce.Limit != "2/running" {
		t.Errorf("at once: %s", s.AtOnce)
	}
	if s.MakespanS < s.OptimumS || s.OptimumS == 0 {
		t.Errorf("makespan %v, optimum %v: nothing was shaped", s.MakespanS, s.OptimumS)
	}
	if f := s.Forecast; f == nil || f.First.Mails != 41 || f.Later.Mails > 1 || len(f.Ends) == 0 || f.Ends[0].LastS <= 0 {
		t.Errorf("forecast %+v of 41 mails at the beginning and one later", f)
	}
	if !strings.Contains(log, "forecast: 41 mails, the last is expected at +") {
		t.Errorf("standard error has no forecast:\n%s", log)
	}
	if !strings.Contains(log, "mails done") || !strings.Contains(log, "All mails arrived exactly once") {
		t.Errorf("standard error lacks progress or report:\n%s", log)
	}
	if _, err := os.Stat(picture); err != nil {
		t.Error(err)
	}
}

// Without a plan, each mail that has to wait is put back once; with a plan, hardly any mail is.
func TestRunWithoutPlan(t *testing.T) {
	t.Parallel()
	args := []string{"-campaign", writeCampaign(t, 60), "-limits", "global=10/500ms"}
	status, without, log := runJSON(t.Context(), t, append(args, "-plan=false")...)
	if status != rig.ExitOK || without.PutBacksPerJob == 0 || without.Forecast != nil ||
		strings.Contains(log, "forecast") {
		t.Errorf("without: status %d, put back %v times per mail\n%s", status, without.PutBacksPerJob, log)
	}
	status, with, log := runJSON(t.Context(), t, args...)
	if status != rig.ExitOK || with.Forecast == nil {
		t.Errorf("with: status %d, forecast %v\n%s", status, with.Forecast, log)
	}
	if with.PutBacksPerJob > without.PutBacksPerJob/2 { // a task that comes late is put back once more
		inFull(t, "put back %v times per mail, without a plan %v", with.PutBacksPerJob, without.PutBacksPerJob)
	}
}

// inFull fails the test if tests run in full. By default it only logs, because a slow machine may miss the figure.
func inFull(t *testing.T, format string, args ...any) {
	t.Helper()
	if longtest.Full() {
		t.Errorf(format, args...)
	} else {
		t.Logf("NOT TESTED on this slow machine: "+format, args...)
	}
}

// All workers leave a domain alone that asks to wait; mails to other domains go on, and no retry is spent.
func TestRunLeavesABusyDomainAlone(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(csvHeader)
	for i := range 120 {
		domain := []string{"hill", "lake", "coast"}[i%3]
		name := fmt.Sprintf("a%d", i)
		if i == 30 {
			name = "busy"
		}
		fmt.Fprintf(&text, "m%03d,0s,tenant%d,me@acme.example,%s@%s.example,Hi,Text\n", i, i%2, name, domain)
	}
	path := filepath.Join(t.TempDir(), "campaign.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	status, s, log := runJSON(t.Context(), t, "-campaign", path, "-limits", "global=10/250ms")
	if status != rig.ExitOK || s.Delivered != 120 || s.Duplicates != 0 || s.Retries != 0 || s.Deferred != 0 ||
		s.HeldUp == 0 {
		t.Fatalf("status %d, %+v\n%s", status, s, log)
	}
	refused, disregarded := 0, 0
	for _, p := range s.Pauses {
		refused += p.Refused
		disregarded += p.Disregarded
		if p.Domain != "hill.example" || p.ForS < 2 {
			t.Errorf("pause %+v, want hill.example for more than 2 s", p)
		}
	}
	if len(s.Pauses) == 0 || disregarded != 0 || refused != s.HeldUp {
		t.Errorf("pauses %+v, %d mails held up", s.Pauses, s.HeldUp)
	}
	if !strings.Contains(log, "hill.example asks to wait") || s.WindowsOver != 0 {
		t.Errorf("%d windows over\n%s", s.WindowsOver, log)
	}
}

// A limit that is raised is checked as it is raised, and is not left behind in Redis.
func TestRunRaisesALimit(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	redis.ClockTTL(true)
	status, s, log := runJSON(t.Context(), t, "-campaign", writeCampaign(t, 40), "-limits", "tenant=100/500ms",
		"-redis", redis.Addr(), "-raise", "tenant1=0s 4/500ms; 2s 8/500ms")
	if status != rig.ExitOK || s.WindowsOver != 0 {
		t.Fatalf("status %d, %d windows over\n%s", status, s.WindowsOver, log)
	}
	var limits []string
	for _, l := range s.Limits {
		limits = append(limits, l.Limit)
	}
	if want := []string{"100/500ms", "4/500ms", "8/500ms"}; !slices.Equal(limits, want) {
		t.Errorf("the limits %s were checked, want %s", limits, want)
	}
	if len(s.Raised) != 2 || s.Raised[0].Fullest > 4 || s.Raised[1].Fullest > 8 ||
		s.Raised[0].Mails+s.Raised[1].Mails < 21 {
		t.Errorf("raised: %+v, want two steps and the tenant's 21 mails", s.Raised)
	}
	if n := s.Raised[0].Units; n < 8 { // two windows of four pass in two seconds of a machine that is not busy
		inFull(t, "%d units started in the first step, want 8", n)
	}
	client := goredis.NewClient(&goredis.Options{Addr: redis.Addr()})
	t.Cleanup(func() { client.Close() })
	scopes, err := rig.ParseLimits("tenant=100/500ms", throttle.Global, scopeTenant, scopeDomain)
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := throttle.New("emailer", client, scopes, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := inspect.New(quotas).Usage(t.Context(), scopeTenant, "tenant1"); err != nil || left.SetFor != "" {
		t.Errorf("after it: %+v, %v; want no limit that is left", left, err)
	}
}

func TestRunPrintsTheReportWithoutJSON(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	status := run(t.Context(), []string{"-campaign", writeCampaign(t, 3), "-limits", ""}, &out, &log)
	if status != rig.ExitOK || !strings.Contains(out.String(), "All mails arrived exactly once") {
		t.Errorf("status %d\n%s%s", status, out.String(), log.String())
	}
}

// A tenant that arrives while another tenant's mails stand in line does not wait for all of them.
func TestRunIsFairToTheLate(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(csvHeader)
	for i := range 70 {
		fmt.Fprintf(&text, "m%03d,0s,early,me@acme.example,a0@hill.example,Hi,\n", i)
	}
	for i := range 4 {
		fmt.Fprintf(&text, "late%d,1s,late,me@acme.example,a0@hill.example,Hi,\n", i)
	}
	path := filepath.Join(t.TempDir(), "campaign.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// With fewer workers than start within maxWait, mails would wait before the line.
	status, s, log := runJSON(t.Context(), t, "-campaign", path, "-limits", "global=10/1s", "-workers", "100")
	if status != rig.ExitOK || s.Late == nil {
		t.Fatalf("status %d, late tenant %v\n%s", status, s.Late, log)
	}
	if s.Late.Tenant != "late" || s.Late.Mails != 4 {
		t.Errorf("got %+v", *s.Late)
	}
	if s.Late.WaitS >= s.Late.FirstComeWaitS { // first come, first served, they start when most of the others have started
		inFull(t, "got %+v, want a shorter wait than first come, first served", *s.Late)
	}
}

// A mail heavier than its limit can never start: it is given up, and the run does not count as well.
func TestRunGivesUpWhatNeverFits(t *testing.T) {
	t.Parallel()
	status, s, log := runJSON(t.Context(), t, "-campaign", writeCampaign(t, 6), "-limits", "domain=2/200ms")
	if status != rig.ExitNotAll || s.OK {
		t.Errorf("status %d, want %d", status, rig.ExitNotAll)
	}
	if s.GivenUp != 2 || s.Delivered != 5 || s.FailedForGood != 1 {
		t.Errorf("got %+v\n%s", s, log)
	}
}

// someDone matches a line of progress when some mails are done, whenever that is.
const someDone = ` s +([3-9]|\d\d+) of `

// cancelWriter cancels a run when its log matches a regular expression.
type cancelWriter struct {
	mu     sync.Mutex
	text   bytes.Buffer
	after  string
	cancel context.CancelFunc
}

func (w *cancelWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if regexp.MustCompile(w.after).Match(w.text.Bytes()) {
		w.cancel()
	}
	return len(p), nil
}

func TestInterruptInsideSaysThatTheRestIsGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &cancelWriter{after: someDone, cancel: cancel}
	var out bytes.Buffer
	began := time.Now()
	status := run(ctx, []string{"-campaign", writeCampaign(t, 100), "-limits", "global=4/1s", "-json"}, &out, log)
	if took := time.Since(began); longtest.Full() && took > 20*time.Second {
		t.Errorf("took %s: the sleepers held the end up", took)
	}
	var s delivery.Summary
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if status != rig.ExitNotAll || !s.Interrupted || s.OK || s.Left == 0 || s.Delivered == 0 || s.Lost != 0 ||
		s.Left+s.Delivered+s.FailedForGood != s.Mails {
		t.Errorf("status %d, %+v", status, s)
	}
	if !strings.Contains(log.text.String(), "gone with the Redis inside this process") {
		t.Errorf("standard error does not say that the rest is gone:\n%s", log.text.String())
	}
}

// The second run, on the same Redis, continues with the mails that the first one left. The SMTP server outlives both,
// so that its record shows every mail once.
func TestSecondRunGoesOn(t *testing.T) {
	t.Parallel()
	redis := miniredis.NewMiniRedis()
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	kept := new(smtp.Record)
	server, err := smtp.StartServer(kept, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	args := []string{"-campaign", writeCampaign(t, 40), "-limits", "global=8/500ms", "-redis", redis.Addr(),
		"-smtp", server.Addr, "-json"}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &cancelWriter{after: someDone, cancel: cancel}
	var out bytes.Buffer
	firstStatus := run(ctx, args, &out, log)
	var first delivery.Summary
	if err := json.Unmarshal(out.Bytes(), &first); err != nil {
		t.Fatal(err)
	}
	if firstStatus == rig.ExitOK && !longtest.Full() {
		t.Skipf("NOT TESTED: all mails were sent before the first line of progress\n%s", log.text.String())
	}
	if firstStatus != rig.ExitNotAll || first.Left == 0 || first.Delivered == 0 ||
		!strings.Contains(log.text.String(), "run it again with the same -redis") {
		t.Fatalf("first run: status %d, %+v\n%s", firstStatus, first, log.text.String())
	}

	status, second, text := runJSON(t.Context(), t, args[:len(args)-1]...)
	if status != rig.ExitOK || second.DeliveredEarlier != first.Delivered ||
		second.Delivered != first.Left-(second.FailedForGood-first.FailedForGood) {
		t.Errorf("second run: status %d\nfirst %+v\nsecond %+v\n%s", status, first, second, text)
	}
	if second.Record != "client's acknowledgements" {
		t.Errorf("the record is of the %s", second.Record)
	}
	status, third, _ := runJSON(t.Context(), t, args[:len(args)-1]...)
	if status != rig.ExitOK || third.DeliveredEarlier != 41 || third.FailedForGood != 1 || third.Delivered != 0 ||
		third.PutBacksPerJob != 0 {
		t.Errorf("third run: status %d, %+v", status, third)
	}

	copies := make(map[string]int)
	for _, r := range kept.All() {
		if r.Accepted() {
			copies[r.Mail]++
		}
	}
	for id, n := range copies {
		if n != 1 {
			t.Errorf("mail %s arrived %d times", id, n)
		}
	}
	if len(copies) != 41 {
		t.Errorf("%d mails arrived, want 41", len(copies))
	}
}

func TestRunRefusesBadInput(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken.csv")
	if err := os.WriteFile(broken, []byte(csvHeader+"m1,0s,,,,,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-colour", "red"}, "flag provided but not defined: -colour"},
		{[]string{"campaign.csv"}, `unexpected argument "campaign.csv"`},
		{[]string{"-workers", "0"}, "-workers 0 is not between 1 and 1000"},
		{[]string{"-workers", "many"}, "invalid value"},
		{[]string{"-plot", "picture.gif"}, "ends neither in .svg nor in .png"},
		{[]string{"-limits", "global=fast"}, "limits: scope global"},
		{[]string{"-limits", "global=1/1s,2/1s"}, "two limits of this kind"},
		{[]string{"-hours", "soon"}, `-hours: throttle: limit "open soon": no time zone`},
		{[]string{"-hours", "Mon-Fri 09:00-17:00 @Europe/Pariss"}, `"Europe/Pariss" is no time zone`},
		{[]string{"-hours", "Mon-Fri 09:00-25:00 @UTC"}, `"09:00-25:00" is no range of hours`},
		{[]string{"-hours", "09:00-17:00 @UTC", "-limits", "global=open Mon 08:00-09:00 @UTC"}, "two limits of this kind"},
		{[]string{"-per-day", "400"}, `-per-day: "400": want recipients and a time zone, such as 400@Europe/Paris`},
		{[]string{"-per-day", "400/week@UTC"}, `-per-day: "400/week@UTC": want recipients and a time zone`},
		{[]string{"-per-day", "many@UTC"}, `-per-day: throttle: limit "many/day@UTC": units "many"`},
		{[]string{"-per-day", "400@Mars"}, `"Mars" is no time zone`},
		{[]string{"-per-day", "0@UTC"}, "-per-day: under 0/day@UTC nothing ever starts"},
		{[]string{"-warmup", "50/day@UTC"}, "-warmup: 50/day@UTC does not grow: want a ramp, such as"},
		{[]string{"-warmup", "ramp 50/day x2 from 2026-12-01 @UTC"}, "x2 never ends: want a max"},
		{[]string{"-warmup", "ramp 5 9/day from 2026-12-01 @UTC", "-limits", "global=9/day@UTC"},
			"two limits of this kind"},
		{[]string{"-connections", "0"}, "-connections 0 is not between 1 and 1000"},
		{[]string{"-raise", "acme=soon 1/1s"}, "-raise: \"soon 1/1s\": soon is not a duration"},
		{[]string{"-campaign", "no-such-file.csv"}, "no-such-file.csv"},
		{[]string{"-campaign", broken}, "line 2: tenant is empty"},
		{[]string{"-smtp", "mailhost"}, `"mailhost" is not host:port`},
		{[]string{"-smtp", "127.0.0.1:1"}, "smtp: no server at 127.0.0.1:1"},
		{[]string{"-redis", "127.0.0.1:1"}, "redis: "},
		{[]string{"-redis", "redis-cluster://127.0.0.1:1,127.0.0.1:2"}, "redis: "},
		{[]string{"-redis", "redis-sentinel://127.0.0.1:1?master=m"}, "redis: "},
		{[]string{"-redis", "redis://me:hunter2@127.0.0.1/x"},
			"-redis: connect: redis URL: path: want the number of a database"},
		{[]string{"-queue", " "}, "-queue"},
		{[]string{"-metrics", "nowhere"}, "metrics: listen tcp: address nowhere: missing port"},
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
	for _, flag := range []string{"-campaign", "-limits", "-connections", "-hours", "-per-day", "-redis", "-smtp",
		"-plan", "-warmup", "-raise",
		"-plot", "-metrics", "-json", "-workers", "-queue", "-v"} {
		if !strings.Contains(log.String(), "  "+flag) {
			t.Errorf("help lacks %s:\n%s", flag, log.String())
		}
	}
}
