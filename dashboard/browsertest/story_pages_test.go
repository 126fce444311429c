package browsertest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// hostileKey is the page of a tenant that would like to be more than a name.
var hostileKey = "key?" + url.Values{"scope": {"tenant"}, "key": {hostile}}.Encode()

// everyPage is each page with something that stands on it.
var everyPage = map[string]string{
	"":                          "Who waits",
	"key?scope=tenant&key=acme": "Flows that wait for it",
	hostileKey:                  hostile,
	"key?scope=global&key=":     "100/1h",
	"job?id=mail-4-4":           "2 of 3 jobs",
	"changes":                   "gmail.example",
	"changes?all=1":             "gmail.example",
	"processes":                 "configured alike",
}

// TestPagesByClicks: from the overview each page is reached by its link.
func TestPagesByClicks(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	b.shows("6 jobs of 2 flows")
	b.click(`a[href="key?scope=tenant&key=acme"]`)
	b.shows("tenant acme")
	b.shows("Started in the last")
	b.click(`nav a[href="changes"]`)
	b.shows("gmail.example")
	b.click(`a[href="changes?all=1"]`)
	b.shows("domain gmail.example")
	b.click(`a[href^="key?scope=domain"]`)
	b.shows("paused until")
	b.click(`nav a[href="processes"]`)
	b.shows("1 process is alive, configured alike.")
	b.click(`header .name a`)
	b.shows("Overview")
	b.run(chromedp.SendKeys(chromedp.CSS("#job-id"), "mail-4-4"))
	b.click("header form button")
	b.shows("2 of 3 jobs")
	b.shows("mail:send")
	b.shows("expected to start")
	b.await(`document.querySelector('a[href="http://127.0.0.1:8080/queues/mails/tasks/mail-4-4"]')`)
	b.open("")
	b.run(chromedp.SetValue(chromedp.CSS(`select[name="scope"]`), "tenant"),
		chromedp.SendKeys(chromedp.CSS(`main input[name="key"]`), "nobody"))
	b.click("main form button")
	b.shows("Nothing waits for it.")
}

// TestLive: an open page shows what happens without being asked for again.
func TestLive(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	b.shows("6 jobs of 2 flows")
	b.mark("same")
	w.reserve("one-more", "hooli")
	w.reserve("another", "hooli")
	w.reserve("a-third", "hooli")
	b.shows("7 jobs of 3 flows")
	b.await("window.same")
}

// TestServed: an open page shows beside the limit what the upstream serves of it, as soon as
// that is reported. It is no wider for it.
func TestServed(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.run(chromedp.EmulateViewport(400, 800, chromedp.EmulateMobile))
	b.open("")
	b.shows("Who waits")
	b.await("!document.getElementById('live').innerText.includes('serves')")
	for _, c := range []struct {
		path, text string
		serves     int64
		shows      string
	}{{"", "Who waits", 90, "serves 90 %"}, {"key?scope=global&key=", "Nothing waits for it.", 60, "serves 60 %"}} {
		b.open(c.path)
		b.shows(c.text)
		b.mark("same")
		w.report(c.serves)
		b.shows(c.shows)
		b.await("window.same")
		if width := value[int](b, "document.documentElement.scrollWidth"); width > 400 {
			t.Errorf("%q is %d wide on a screen of 400", c.path, width)
		}
	}
	b.open("job?id=mail-4-4")
	b.shows("serves 60 %")
}

// TestPressedLinkStays: a link that is pressed while something new comes is not replaced
// under the finger, or the click would be lost.
func TestPressedLinkStays(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	b.shows("6 jobs of 2 flows")
	b.await("shown !== ''") // the first event has drawn the page once more
	place := value[struct{ X, Y float64 }](b, `(() => {
		const link = document.querySelector('#live a[href="key?scope=tenant&key=acme"]').getBoundingClientRect()
		return {X: link.x + link.width / 2, Y: link.y + link.height / 2}
	})()`)
	left := []chromedp.MouseOption{chromedp.ButtonType(input.MouseButtonLeft), chromedp.ClickCount(1)}
	b.run(chromedp.MouseEvent(chromedp.MousePressed, place.X, place.Y, left...))
	for _, job := range []string{"one-more", "another", "a-third"} {
		w.reserve(job, "hooli")
	}
	b.await("waiting !== ''")
	b.run(chromedp.MouseEvent(chromedp.MouseReleased, place.X, place.Y, left...))
	b.shows("tenant acme")
	b.shows("Started in the last")
}

// TestHostileName: a name is shown as it is on each page, and is nothing else there.
func TestHostileName(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	if err := inspect.New(w.throttle).ResetLimits(t.Context(), "tenant", hostile); err != nil {
		t.Fatal(err)
	}
	b.open("")
	b.shows(hostile)
	page := value[string](b, `Array.from(document.querySelectorAll('main a')).find((a) => a.innerText.includes(`+
		quoted(hostile)+`)).href`)
	b.run(chromedp.Navigate(page))
	b.shows(hostile)
	b.run(chromedp.SendKeys(chromedp.CSS(`input[name="for"]`), kb.End+"0m")) // 1h0m
	b.click(`button[value="pause"]`)
	b.shows("paused until")
	for _, path := range []string{"changes", "changes?all=1", hostileKey} {
		b.open(path)
		b.shows(hostile)
		b.await(`document.querySelectorAll('img, main script').length === 0`)
	}
	b.expectErrors() // nothing is known of such a job
	b.open("job?id=" + url.QueryEscape(hostile))
	b.shows(hostile)
}

// TestNarrow: no page is wider than a small screen, and the overview says there too why jobs wait.
func TestNarrow(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.run(chromedp.EmulateViewport(400, 800, chromedp.EmulateMobile))
	for path, text := range everyPage {
		b.open(path)
		b.shows(text)
		if width := value[int](b, "document.documentElement.scrollWidth"); width > 400 {
			t.Errorf("%s is %d wide on a screen of 400", path, width)
		}
	}
	b.open("")
	b.shows("2/1h, 2 used, 0 booked")
}

// TestLongNames: a name without a blank is wrapped on a large screen too, others are whole.
func TestLongNames(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 120)
	for i := range 4 {
		w.reserve(fmt.Sprint("long-", i), long)
		w.reserve(fmt.Sprint("umbrella-", i), "umbrella")
	}
	if _, err := inspect.New(w.throttle).Pause(t.Context(), "domain", long, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b := openTab(t, w.base)
	for _, screen := range []int64{1000, 400} {
		b.run(chromedp.EmulateViewport(screen, 800))
		for _, path := range []string{"", "changes", "key?scope=tenant&key=" + long} {
			b.open(path)
			b.shows(long)
			if width := value[int64](b, "document.documentElement.scrollWidth"); width > screen {
				t.Errorf("%q is %d wide on a screen of %d", path, width, screen)
			}
		}
		b.open("")
		b.shows("umbrella")
		if lines := value[int](b,
			`Math.max(...Array.from(document.querySelectorAll('#live bdi'))`+
				`.filter((e) => e.innerText === 'umbrella')`+
				`.map((e) => Math.round(e.getBoundingClientRect().height / 20)))`); lines != 1 {
			t.Errorf("umbrella takes %d lines on a screen of %d", lines, screen)
		}
	}
}

// TestDarkAndLight: the page follows what the reader prefers.
func TestDarkAndLight(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	for scheme, want := range map[string]string{"dark": "rgb(21, 24, 28)", "light": "rgb(251, 251, 250)"} {
		send(b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		b.await("getComputedStyle(document.body).backgroundColor === " + quoted(want))
	}
}

// TestKeyboard: links are reached by Tab and followed by Enter, and what is new leaves the
// focus where it was.
func TestKeyboard(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	b.shows("Who waits")
	focused := `document.activeElement && document.activeElement.getAttribute('href') === 'key?scope=tenant&key=acme'`
	for range 30 {
		b.run(chromedp.KeyEvent(kb.Tab))
		if value[bool](b, "Boolean("+focused+")") {
			break
		}
	}
	b.run(chromedp.Evaluate[chromedp.Void](`void (document.querySelector('#live dl').id = 'old')`))
	b.await(`document.querySelector('#live dl') && !document.getElementById('old')`)
	b.await(focused)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.shows("Flows that wait for it")
	b.run(chromedp.KeyEvent(kb.Tab))
	b.await(`document.activeElement.className === 'skip'`)
}

// contrasts returns what is hard to read on a page: texts with a contrast of less than 4.5, and bars with
// one of less than 3 between what is used and the room beside it.
const contrasts = `(() => {
  const parts = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parts(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = 'p, a, td, th, dt, dd, b, strong, button, label, .far, .problem, .note, .mark';
  for (const element of document.querySelectorAll(texts)) {
    if (!element.innerText.trim() || element.offsetWidth === 0 || element.classList.contains('skip')) continue;
    const ratio = contrast(parts(getComputedStyle(element).color), behind(element));
    if (ratio < 4.5) found.push(element.innerText.slice(0, 40) + ': ' + ratio.toFixed(2));
  }
  for (const bar of document.querySelectorAll('svg.bar')) {
    const fill = (name) => parts(getComputedStyle(bar.querySelector(name)).fill);
    const ratio = contrast(fill('.used'), fill('.room'));
    if (ratio < 3) found.push('a bar: ' + ratio.toFixed(2));
  }
  return found.join('; ');
})()`

// TestContrast: all texts and bars of all pages can be told from what is behind them, in the dark too.
func TestContrast(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	for _, scheme := range []string{"dark", "light"} {
		send(b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for path, text := range everyPage {
			b.open(path)
			b.shows(text)
			if found := value[string](b, contrasts); found != "" {
				t.Errorf("%s, %s: %s", path, scheme, found)
			}
		}
	}
}

// TestIdle: the pages of a throttle under which nothing has happened yet say so, and nothing else.
func TestIdle(t *testing.T) {
	w := newIdleWorld(t)
	b := openTab(t, w.base)
	for path, text := range map[string]string{
		"": "Nothing waits.", "key?scope=tenant&key=acme": "Nothing waits for it.",
		"changes": "Nothing was changed at run time.", "processes": "1 process is alive, configured alike.",
	} {
		b.open(path)
		b.shows(text)
		b.await(`!document.querySelector('main').innerText.match(/NaN|undefined|0001|<no value>/)`)
	}
}
