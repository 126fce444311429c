package delivery

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWritePlot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"run.svg", "run.PNG"} {
		if err := writePlot(filepath.Join(dir, name), sampleResult(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writePlot(filepath.Join(dir, "late.svg"), lateResult(t)); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "run.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "all tenants: units started per second",
		"acme: units arrived and started", "2/1s"} {
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
	r := result{campaign: sampleResult(t).campaign}
	if err := writePlot(filepath.Join(t.TempDir(), "run.svg"), r); err != nil {
		t.Error(err)
	}
	if err := writePlot(filepath.Join(t.TempDir(), "no", "such", "directory.svg"), r); err == nil {
		t.Error("no error for a file that cannot be made")
	}
}
