package browsertest

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

// buildTry builds the page in which people try their limits, as make try does, and returns the address of its folder
// on the disk.
func buildTry(t *testing.T) (base string) {
	t.Helper()
	requireProgram(t)
	folder := t.TempDir()
	const page = "github.com/asynq-throttle/asynq-throttle/internal/try/page"
	built, err := exec.CommandContext(t.Context(), "go", "run", page, filepath.Join(folder, "index.html")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, built)
	}
	return (&url.URL{Scheme: "file", Path: folder + "/"}).String()
}

// enter writes a text into a field of the page.
func (b *tab) enter(field, text string) {
	b.Helper()
	b.run(chromedp.Evaluate[chromedp.Void]("(() => { const field = document.querySelector('[name=" + field + "]');" +
		"field.value = " + quoted(text) + "; field.dispatchEvent(new Event('input', {bubbles: true})) })()"))
}

// TestTry: the page works from a disk, without any other file. What is changed changes the picture and the address, and
// the address brings back what was entered. A bad text is refused beside its field.
func TestTry(t *testing.T) {
	longtest.Unwatched(t)
	base := buildTry(t)
	b := openTab(t, base)
	b.run(chromedp.EmulateViewport(400, 800, chromedp.EmulateMobile))
	b.open("index.html")
	b.shows("1200 jobs, played in")
	const picture = "document.querySelector('figure svg').outerHTML"
	before := value[string](b, picture)
	if width := value[int](b, "document.documentElement.scrollWidth"); width > 400 {
		t.Errorf("the page is %d wide on a screen of 400", width)
	}

	b.enter("global", "100/2s")
	b.shows("global 100/2s")
	b.await(picture + " !== " + quoted(before))
	b.await("location.hash === '#global=100%2F2s'")

	b.enter("tenants", "none")
	b.await("document.querySelector('[name=tenants]').ariaInvalid === 'true'")
	b.shows(`Tenants: "none" is not a whole number`)
	b.enter("tenants", "3")
	b.shows("450 jobs, played in")
	b.await("document.getElementById('problem').hidden")

	address := value[string](b, "location.hash")
	after := value[string](b, picture)
	b.open("index.html?again" + address) // another page, not another place in this one
	b.shows("450 jobs, played in")
	if got := value[string](b, "document.querySelector('[name=global]').value"); got != "100/2s" {
		t.Errorf("the field has %q, want what the address has", got)
	}
	if value[string](b, picture) != after {
		t.Error("the same address shows another picture")
	}
}
