package browsertest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

var closeBrowser = func() {}

func TestMain(m *testing.M) {
	status := longtest.Quiet(m).Run()
	closeBrowser()
	os.Exit(status)
}

// theBrowser is one for all tests.
var theBrowser = sync.OnceValues(func() (context.Context, error) {
	browser, end, err := Open(context.Background(), 1000, 900)
	if err == nil {
		closeBrowser = end
	}
	return browser, err
})

// requireProgram skips the test, loudly, or fails it where a browser is required.
func requireProgram(t *testing.T) {
	t.Helper()
	_, err := Program()
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_CHROMIUM") == "1":
		t.Fatalf("browsertest: %v, and REQUIRE_CHROMIUM=1 wants one: %s cannot run", err, t.Name())
	default:
		t.Skipf("browsertest: NOT TESTED in a browser: %s (%v)", t.Name(), err)
	}
}

// tab is one page of the browser. What it complains about, and what it asks of other
// hosts, fails the test.
type tab struct {
	*testing.T
	ctx  context.Context
	base string // of the pages

	mu       sync.Mutex
	expected bool // errors are what the test is about
}

// patience bounds the wait for a page that never shows what it should.
const patience = 2 * time.Minute

func openTab(t *testing.T, base string) *tab {
	t.Helper()
	browser, err := theBrowser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	send(b, network.Enable, network.EnableParams{})
	send(b, log.Enable, cdp.Empty{})
	b.run(chromedp.EmulateViewport(1000, 900))
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	expected := b.expected
	b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.Errorf("an exception: %s", e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !expected {
			b.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.Errorf("a dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.base) && !strings.HasPrefix(e.Request.URL, "about:") {
			b.Errorf("another host is asked: %s", e.Request.URL)
		}
	}
}

// expectErrors is for a test in which a page is answered with an error.
func (b *tab) expectErrors() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = true
}

// send sends a command of the browser's protocol.
func send[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// open goes to a page.
func (b *tab) open(path string) {
	b.Helper()
	b.run(chromedp.Navigate(b.base + path))
}

// click clicks what a CSS selector names, and waits until another page is there. What is
// live may be drawn anew while the element is looked for: then it is looked for again.
func (b *tab) click(selector string) {
	b.Helper()
	b.mark("before")
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
	for isGone(err) {
		err = chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
	}
	if err != nil {
		b.Fatal(err)
	}
	b.await("window.before === undefined && document.readyState === 'complete'")
}

// isGone tells the browser's error for an element that was drawn anew since it was found.
func isGone(err error) bool {
	const serverError = -32000 // of JSON-RPC: what the browser answers for an unknown node
	var refused *cdproto.Error
	return errors.As(err, &refused) && refused.Code == serverError
}

// mark sets a variable of the page, which is gone when another page comes.
func (b *tab) mark(name string) {
	b.Helper()
	b.run(chromedp.Evaluate[chromedp.Void]("void (window." + name + " = true)"))
}

// value is that of an expression of the page.
func value[T any](b *tab, expression string) T {
	b.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatal(err)
	}
	return result
}

// await waits until an expression of the page is true. The polls are counted, so a machine that
// stands still for a while is no failure.
func (b *tab) await(condition string) {
	b.Helper()
	const interval = 20 * time.Millisecond
	poll := time.NewTicker(interval)
	defer poll.Stop()
	var failed error
	for range patience / interval {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")")) // fails while another page comes
		if failed = err; err == nil && is {
			return
		}
		<-poll.C
	}
	b.Fatalf("%s: not within %s (%v); the page is\n%s", condition, patience, failed, b.text())
}

// shows waits until the page has a text.
func (b *tab) shows(text string) {
	b.Helper()
	b.await("document.body.innerText.includes(" + quoted(text) + ")")
}

func (b *tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
	if err != nil {
		return err.Error()
	}
	return text
}

// quoted is a text in JavaScript.
func quoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(text) + "'"
}
