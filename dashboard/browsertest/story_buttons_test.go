package browsertest

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// seen is an expression of the page: whether a button is shown.
func seen(button string) string {
	return `document.querySelector('button[value="` + button + `"]').offsetWidth > 0`
}

// TestButtons: each button does in Redis what it says, and the page shows it. There are those that
// fit the state, and the field of the limits has those in force.
func TestButtons(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("key?scope=tenant&key=acme")
	b.shows("open")
	b.await("!(" + seen("resume") + ") && !(" + seen("reset") + ") && " + seen("pause") + " && " + seen("limits"))
	b.await(`document.querySelector('input[name="limits"]').value === '2/1h'`)
	b.await(`Array.from(document.querySelectorAll('input[name="zone"]'))` +
		`.every((e) => e.value === Intl.DateTimeFormat().resolvedOptions().timeZone)`)

	b.run(chromedp.SetValue(chromedp.CSS(`input[name="for"]`), "2h"))
	b.click(`button[value="pause"]`)
	b.shows("paused until")
	b.await(seen("resume"))
	if left := time.Until(w.usage("tenant", "acme").Paused); left < time.Hour || left > 2*time.Hour {
		t.Errorf("it is paused for %s", left)
	}

	b.click(`button[value="resume"]`)
	b.shows("open")
	if u := w.usage("tenant", "acme"); !u.Paused.IsZero() {
		t.Errorf("it is paused until %s", u.Paused)
	}

	b.run(chromedp.SetValue(chromedp.CSS(`input[name="limits"]`), "1/1h"))
	b.click(`form[aria-label="Limits"] button:not([value])`) // Try
	b.shows("1 would have been kept back")
	if u := w.usage("tenant", "acme"); u.SetFor != "" {
		t.Errorf("to try has set %+v", u)
	}

	b.run(chromedp.SetValue(chromedp.CSS(`input[name="limits"]`), "5/1h, 1000/24h"))
	b.click(`button[value="limits"]`)
	b.shows("To undo it: Reset.")
	b.click(`form.asked button`)
	b.shows("set at run time for the key")
	b.shows("1000/24h")
	b.await(seen("reset") + ` && document.querySelector('input[name="limits"]').value === '5/1h, 1000/24h'`)
	if u := w.usage("tenant", "acme"); u.SetFor != "key" || len(u.Limits) != 2 || u.Limits[0].Limit.Units != 5 {
		t.Errorf("it has %+v", u)
	}

	b.click(`button[value="reset"]`)
	b.shows("To undo it: Set 5/1h, 1000/24h.")
	b.click(`form.asked button`)
	b.shows("as configured")
	if u := w.usage("tenant", "acme"); u.SetFor != "" || len(u.Limits) != 1 {
		t.Errorf("it has %+v", u)
	}
	b.open("changes")
	b.shows("5/1h, 1000/24h")
}

// TestWrongLimits: what is wrong is said, and what was typed stays.
func TestWrongLimits(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("key?scope=tenant&key=acme")
	b.expectErrors() // status 400
	b.run(chromedp.SetValue(chromedp.CSS(`input[name="limits"]`), "lots"))
	b.click(`button[value="limits"]`)
	b.shows("lots")
	b.await(`document.querySelector('[role=alert]') && document.querySelector('input[name="limits"]').value === 'lots'`)
	if u := w.usage("tenant", "acme"); u.SetFor != "" {
		t.Errorf("it has %+v", u)
	}
}
