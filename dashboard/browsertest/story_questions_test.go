package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestTenQuestions: each question of docs/operations.md is answered by a page, in two clicks
// from the overview at most.
func TestTenQuestions(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	explain := func() {
		b.run(chromedp.SendKeys(chromedp.CSS("#job-id"), "mail-4-4"))
		b.click("header form button")
	}
	look := func(scope, key string) {
		b.run(chromedp.SetValue(chromedp.CSS(`select[name="scope"]`), scope),
			chromedp.SendKeys(chromedp.CSS(`main input[name="key"]`), key))
		b.click("main form button")
	}
	limits := func(text, button string) {
		b.run(chromedp.SetValue(chromedp.CSS(`input[name="limits"]`), text))
		b.click(button)
	}
	for _, c := range []struct {
		question, answer string
		clicks           func()
	}{
		{"who waits longest, and for what", "Waits for", func() {}},
		{"why does task X not run", "Its lane waits for\ntenant acme", explain},
		{"when will it", "expected to start", explain},
		{"is acme using its limit", "2 of 2", func() { look("tenant", "acme") }},
		{"which domain is paused until when, by whom", "domain gmail.example", func() { b.click(`nav a[href="changes"]`) }},
		{"raise acme", "set at run time for the key", func() {
			b.click(`a[href="key?scope=tenant&key=acme"]`)
			limits("5/1h", `button[value="limits"]`)
			b.shows("To undo it")
			b.click(`form.asked button`)
		}},
		{"stop all mail to a domain", "paused until", func() {
			look("domain", "mx.example")
			b.click(`button[value="pause"]`)
		}},
		{"what would a new limit hold back", "1 would have been kept back", func() {
			look("tenant", "acme")
			limits("1/1h", `form[aria-label="Limits"] button:not([value])`)
		}},
		{"are all processes configured alike", "configured alike", func() {}},
		{"is Redis the bottleneck", "of a core", func() {}},
	} {
		b.open("")
		b.shows("Who waits")
		c.clicks()
		b.shows(c.answer)
		t.Log(c.question)
	}
}
