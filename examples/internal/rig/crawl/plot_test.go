package crawl

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// sampleResult returns a run of two hosts, one of which asked for a pause.
func sampleResult(t *testing.T) Result {
	t.Helper()
	requests, err := rig.ParseLimits("global=30/1s;host=5/1s", throttle.Global, ScopeHost)
	if err != nil {
		t.Fatal(err)
	}
	kilobytes, err := rig.ParseLimits("global=1400/2s;customer=900/2s;site=800/2s;ip=600/2s;host=560/2s",
		throttle.Global, ScopeCustomer, ScopeSite, ScopeIP, ScopeHost)
	if err != nil {
		t.Fatal(err)
	}
	began := time.UnixMicro(1_700_000_000_000_000)
	after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	return Result{
		seeds: "sample", Requests: requests, kilobytes: kilobytes, began: began,
		delays: map[string]time.Duration{"b": 2 * time.Second},
		Accesses: []site.Access{
			{At: after(10), End: after(11), Host: "a", URL: "http://a/", Status: 200, Bytes: 5000, Whole: true},
			{At: after(700), End: after(701), Host: "a", URL: "http://a/1", Status: 429, Until: after(1701)},
			{At: after(800), End: after(850), Host: "b", URL: "http://b/", Status: 200, Bytes: 90_000, Whole: true},
			{At: after(2900), End: after(2950), Host: "b", URL: "http://b/1", Status: 304},
		},
	}
}

func TestWritePlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"run.svg", "run.PNG"} {
		if err := writePlot(filepath.Join(dir, name), sampleResult(t)); err != nil {
			t.Fatal(err)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "run.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "all hosts: requests per second", "b: kilobytes per second", "1/2s"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("run.svg lacks %q", want)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "run.PNG"))
	if err != nil {
		t.Fatal(err)
	}
	if picture, err := png.Decode(bytes.NewReader(content)); err != nil || picture.Bounds().Dx() < 1000 {
		t.Errorf("run.PNG: %v", err)
	}
}

func TestWritePlotOfNothing(t *testing.T) {
	t.Parallel()
	r := Result{Requests: sampleResult(t).Requests}
	if err := writePlot(filepath.Join(t.TempDir(), "run.svg"), r); err != nil {
		t.Error(err)
	}
	if err := writePlot(filepath.Join(t.TempDir(), "no", "such", "directory.svg"), r); err == nil {
		t.Error("no error for a file that cannot be made")
	}
}

func TestRowsOf(t *testing.T) {
	t.Parallel()
	rows := rowsOf(sampleResult(t))
	if len(rows) != 3 || rows[0].title != "all hosts" || rows[1].title != "a" || rows[2].title != "b" {
		t.Fatalf("got %+v", rows)
	}
	if len(rows[0].requests) != 4 || len(rows[1].pauses) != 1 || len(rows[2].pauses) != 0 {
		t.Errorf("got %+v", rows)
	}
}
