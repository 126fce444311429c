package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// hostile is text that a terminal obeys: it clears the screen, sets the title, turns the
// direction of text and goes back to the line's begin.
const hostile = "\x1b[2J\x1b]0;owned\a\u202egpj.exe\rroot# \u009b1m\x7f"

// TestNothingForeignIsObeyed: of all that verbs print a terminal obeys nothing that tenants,
// tasks or other processes wrote.
func TestNothingForeignIsObeyed(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		ctx := t.Context()
		for range 3 {
			if _,
				err := th.Reserve(ctx, throttle.Job{ID: hostile, Weight: 1,
				Keys: map[string]string{"tenant": hostile, "domain": hostile}}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			job := throttle.Job{ID: hostile + string(rune('a'+i)), Weight: 1,
				Keys: map[string]string{"tenant": hostile, "domain": hostile}}
			if _, err := th.Reserve(ctx, job); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := inspect.New(th).Pause(ctx, "domain", hostile, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		change,
			err := json.Marshal(inspect.Change{At: time.Now(), By: hostile, What: hostile, Scope: "domain",
			Key: hostile, Before: hostile, After: hostile})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.LPush(ctx, "thr:{smtp}:changes", change).Err(); err != nil {
			t.Fatal(err)
		}
		for _, line := range append(session, "changes smtp", "job|smtp|"+hostile, "usage|smtp|domain|"+hostile,
			"pause|smtp|domain|"+hostile+"x|--for|1h", "resume|smtp|domain|"+hostile+"x", "status|"+hostile) {
			args := strings.Split(line, "|")
			if len(args) == 1 {
				args = strings.Fields(line)
			}
			for _, more := range [][]string{nil, {"--json"}} {
				r := asked(t, client.Options().Addr, append(args, more...)...)
				obeyed(t, strings.Join(append(args, more...), " "), r.out+r.errs)
			}
		}
	})
}

// obeyed fails the test if a terminal would obey what is in a text.
func obeyed(t *testing.T, of, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if at := strings.IndexFunc(strings.TrimSuffix(line, "\n"),
			func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%q prints %q", of, line)
			return
		}
	}
}

// TestLastErrorIsNotObeyed: what a task failed with is shown, and is one line.
func TestLastErrorIsNotObeyed(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	p := &program{out: &b, errs: &b}
	e := explain.Explanation{Job: hostile, State: hostile, Scope: "domain", Key: hostile, Task: &explain.Task{
		Queue: hostile, ID: hostile, Type: hostile, State: hostile,
		LastError: "535 denied" + hostile + "\nsecond line", Paused: true,
	}}
	if err := p.print(e, func(g *page) { writeJob(g, e) }); err != nil {
		t.Fatal(err)
	}
	obeyed(t, "job", b.String())
	if !strings.Contains(b.String(), `last error: 535 denied\x1b[2J`) {
		t.Errorf("the error is not told: %s", b.String())
	}
}

// TestColoursAreOurs: what stands in colour is as printable as the rest, and ours alone.
func TestColoursAreOurs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	g := &page{w: &b, colours: true}
	g.line("%s, %s, %v, %d", g.bad("a\x1b[2Jb"), "c\x1b[2J", errors.New("d\r"), 7)
	if want := "\x1b[31ma\\x1b[2Jb\x1b[0m, c\\x1b[2J, d\\r, 7\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestUndoNamesTheSameKey: a shell reads from a command to be copied the key that was meant.
func TestUndoNamesTheSameKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"acme": "acme", "big corp": "'big corp'", "it's": `'it'\''s'`, "a\x1b'\\b": `$'a\x1b\'\\b'`,
		"\u202e": `$'\u202e'`, "\xff": `$'\xff'`, "": "''",
	} {
		if got := quoted(text); got != want {
			t.Errorf("%q is quoted as %s, want %s", text, got, want)
		}
	}
}
