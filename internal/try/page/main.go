// Command page builds the page in which people try their limits: one HTML file, with all that it needs, for any
// browser, from a server or from a disk.
//
//	go run ./internal/try/page docs/try/index.html
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed page.html
var html string

//go:embed page.css
var style string

//go:embed page.js
var script string

// parts are what stands in the page.
type parts struct{ Style, Script, Go, Wasm string }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: page FILE")
		os.Exit(2)
	}
	if err := build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func build(file string) error {
	p := parts{Style: style, Script: script}
	root, err := run("env", "GOROOT")
	if err != nil {
		return err
	}
	// The part of Go's runtime that is in JavaScript, of the same version as the compiler.
	glue, err := os.ReadFile(filepath.Join(strings.TrimSpace(root), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	p.Go = string(glue)
	if p.Wasm, err = compile(); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := template.Must(template.New("page").Parse(html)).Execute(&page, p); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a page is for everybody
		return err
	}
	fmt.Printf("%s: %.1f MB\n", file, float64(page.Len())/1e6)
	return os.WriteFile(file, page.Bytes(), 0o644) //nolint:gosec // as above
}

// compile returns the part that computes, compressed and as text. The paths of this machine are not in it.
func compile() (string, error) {
	folder, err := os.MkdirTemp("", "try")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
	file := filepath.Join(folder, "try.wasm")
	if _, err := run("build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file,
		"github.com/asynq-throttle/asynq-throttle/internal/try/wasm"); err != nil {
		return "", err
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(code); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// run runs the go command for WebAssembly, and returns what it prints.
func run(args ...string) (string, error) {
	command := exec.Command("go", args...) //nolint:gosec // the arguments stand above
	command.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	var said bytes.Buffer
	command.Stderr = &said
	printed, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, said.String())
	}
	return string(printed), nil
}
