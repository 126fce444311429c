package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sampleResult is a run of two hosts, one of which asked for a pause.
func sampleResult(t *testing.T) result {
	t.Helper()
	o, err := parseOptions(nil, new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	began := time.UnixMicro(1_700_000_000_000_000)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	return result{
		seeds: &seedList{name: "sample"}, options: o, began: began, delays: map[string]time.Duration{"b": 2 * time.Second},
		accesses: []access{
			{at: at(10), end: at(11), host: "a", url: "http://a/", status: 200, bytes: 5000, whole: true},
			{at: at(700), end: at(701), host: "a", url: "http://a/1", status: 429, until: at(1701)},
			{at: at(800), end: at(850), host: "b", url: "http://b/", status: 200, bytes: 90_000, whole: true},
			{at: at(2900), end: at(2950), host: "b", url: "http://b/1", status: 304},
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
	r := result{options: sampleResult(t).options}
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
