package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/completion"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// runJSON runs the program with -json and reads what it printed.
func runJSON(ctx context.Context, t *testing.T, args ...string) (status int, s completion.Summary, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	status = run(ctx, append(args, "-json"), &out, &log)
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("status %d, standard output is not one JSON object: %v\n%s\n%s", status, err, out.String(), log.String())
	}
	return status, s, log.String()
}

// short returns the arguments of a run of a few seconds.
func short(args ...string) []string {
	return append([]string{"-jobs", "60", "-window", "500ms", "-budget", "100000"}, args...)
}

// settled reports whether each charge is the use that the provider reports, or is still the estimate because the
// machine was too busy to settle it.
func settled(s completion.Summary) bool { return s.Mischarged == 0 && s.BudgetsRight }

// The program runs as a user calls it, over a network and in real time: however busy the machine
// is, every limit is kept, and each charge is the use that the provider reports.
func TestRun(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "run.svg")
	status, s, log := runJSON(t.Context(), t, short("-plot", picture)...)
	if status != rig.ExitOK || !s.OK {
		t.Fatalf("status %d\n%s", status, log)
	}
	if s.Answered != 60 || s.WindowsOver != 0 || s.DailyBudgetOver != 0 || !settled(s) ||
		s.ChargedUnits <= s.SettledUnits || s.Record != "provider" || len(s.Customers) != 4 || s.Lost+s.Duplicates != 0 {
		t.Errorf("got %+v", s)
	}
	if !strings.Contains(log, "prompts done") || !strings.Contains(log, "every limit and budget was kept") {
		t.Errorf("standard error lacks progress or report:\n%s", log)
	}
	if _, err := os.Stat(picture); err != nil {
		t.Error(err)
	}
}

func TestRunOnRedis(t *testing.T) {
	t.Parallel()
	status, s, log := runJSON(t.Context(), t, short("-redis", redistest.Start(t).Addr)...)
	if status != rig.ExitOK || s.Answered != 60 || !settled(s) {
		t.Errorf("status %d, %+v\n%s", status, s, log)
	}
}

// A real provider keeps no record for us: the client's log stands in. The provider gets the key,
// and the key appears nowhere else.
func TestRunWithAnotherProvider(t *testing.T) {
	t.Setenv(keyVariable, "hunter2")
	p := provider.New(provider.Options{Models: map[string]provider.Limits{"other": {Requests: 60, Tokens: 30_000}},
		Window: 500 * time.Millisecond})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hunter2" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	status, s, log := runJSON(t.Context(), t, short("-base-url", server.URL+"/v1", "-model", "other")...)
	if status != rig.ExitOK || s.Answered != 60 || s.Record != "client's log" || s.Model != "other" {
		t.Errorf("status %d, %+v\n%s", status, s, log)
	}
	var tokens int64
	for _, r := range p.Record.All() {
		tokens += r.Tokens()
	}
	if s.Tokens != tokens || !settled(s) {
		t.Errorf("%d tokens in the log, %d charged, the provider says %d", s.Tokens, s.SettledUnits, tokens)
	}
	if strings.Contains(log, "hunter2") {
		t.Errorf("the key was printed:\n%s", log)
	}
}

// cancelWriter cancels a run once it has reported progress twice, after about two seconds.
type cancelWriter struct {
	text   bytes.Buffer
	cancel context.CancelFunc
}

// Write needs no lock of its own: the program calls it under its lock.
func (w *cancelWriter) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Count(w.text.String(), "prompts done") >= 2 {
		w.cancel()
	}
	return len(p), nil
}

func TestInterruptInsideSaysThatTheRestIsGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, log := time.Now(), &cancelWriter{cancel: cancel}
	var out bytes.Buffer
	status := run(ctx, []string{"-json"}, &out, log)
	if took := time.Since(began); longtest.Full() && took > 20*time.Second {
		t.Errorf("the run ended after %s: handlers asleep held it up", took)
	}
	var s completion.Summary
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v\n%s", err, log.text.String())
	}
	if status != rig.ExitNotAll || !s.Interrupted || s.OK || s.Left == 0 || s.Lost != 0 ||
		!strings.Contains(log.text.String(), "gone with the Redis inside this process") {
		t.Errorf("status %d, %+v\n%s", status, s, log.text.String())
	}
}

func TestRunRefusesBadInput(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-colour", "red"}, "flag provided but not defined: -colour"},
		{[]string{"prompts.csv"}, `unexpected argument "prompts.csv"`},
		{[]string{"-jobs", "0"}, "-jobs 0 is not between 1 and 100000"},
		{[]string{"-customers", "1001"}, "-customers 1001 is not between 1 and 1000"},
		{[]string{"-window", "100ms"}, "-window 100ms is not between 500ms and 1h0m0s"},
		{[]string{"-window", "0"}, "-window 0s is not between 500ms and 1h0m0s"},
		{[]string{"-requests", "0"}, "-requests 0, -tokens 30000 or -budget 45000 is less than 1"},
		{[]string{"-tokens", "1000"}, "a third of -tokens 1000 is less than the"},
		{[]string{"-budget", "1000"}, "-budget 1000 is less than the"},
		{[]string{"-incident", "0"}, "-incident 0 is not above 0 and up to 1"},
		{[]string{"-incident", "NaN"}, "-incident NaN is not above 0 and up to 1"},
		{[]string{"-mode", "loose"}, "is none of enforce, shadow, off"},
		{[]string{"-model", ""}, "-model is empty"},
		{[]string{"-base-url", "api.example/v1"}, "-base-url is no http or https URL"},
		{[]string{"-base-url", "https://me:hunter2@api.example/v1"}, "-base-url is no http or https URL without a user"},
		{[]string{"-redis", "127.0.0.1:1"}, "redis: "},
		{[]string{"-queue", " "}, "-queue"},
	} {
		var out, log bytes.Buffer
		status := run(t.Context(), row.args, &out, &log)
		if status != rig.ExitUsage || !strings.Contains(log.String(), row.want) || out.Len() > 0 ||
			strings.Contains(log.String(), "hunter2") {
			t.Errorf("%q: status %d, want %d with %q\n%s", row.args, status, rig.ExitUsage, row.want, log.String())
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, io.Discard, &log); status != rig.ExitOK {
		t.Errorf("status %d", status)
	}
	for _, flag := range []string{"-jobs", "-customers", "-seed", "-base-url", "-model", "-window", "-requests",
		"-tokens", "-budget", "-incident", "-mode", "-redis", "-plot", "-json", "-workers", "-queue", "-dashboard", "-v"} {
		if !strings.Contains(log.String(), "  "+flag) {
			t.Errorf("help lacks %s:\n%s", flag, log.String())
		}
	}
}
