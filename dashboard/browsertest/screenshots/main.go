// Screenshots writes the pictures of the dashboard: it runs the emailer, looks at its pages
// in a browser, and writes what that shows.
//
//	go run ./screenshots ../../docs
//
// It wants chromium, and redis-server.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/asynq-throttle/asynq-throttle/dashboard/browsertest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// pictures are what is written: a page, and how high the picture is.
var pictures = []struct {
	file, page string
	height     int64
}{
	{"dashboard-overview.png", "", 1080},
	{"dashboard-key.png", "key?scope=tenant&key=acme", 860},
}

const (
	width  = 1000
	middle = 14 * time.Second // of the campaign
	settle = 4 * time.Second  // for a page to have heard of something new
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./screenshots DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(directory string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := redistest.Launch()
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // it has nothing to lose
	browser, end, err := browsertest.Open(ctx, width, int(pictures[0].height))
	if err != nil {
		return err
	}
	defer end()
	base, wait, err := emailer(ctx, server.Addr)
	if err != nil {
		return err
	}
	defer wait()
	// The overview is open from the beginning: what it has seen is drawn too.
	if err := chromedp.Do(browser, chromedp.Navigate(base), chromedp.Sleep(middle)); err != nil {
		return err
	}
	for i, p := range pictures {
		if i > 0 {
			if err := chromedp.Do(browser, chromedp.Navigate(base+p.page)); err != nil {
				return err
			}
		}
		if err := chromedp.Do(browser, chromedp.EmulateViewport(width, p.height), chromedp.Sleep(settle)); err != nil {
			return err
		}
		picture, err := chromedp.Run(browser, chromedp.CaptureScreenshot())
		if err != nil {
			return err
		}
		file := filepath.Join(directory, p.file)
		if err := os.WriteFile(file, picture, 0o644); err != nil { //nolint:gosec // a picture for everybody
			return err
		}
		fmt.Printf("%s: %d kB\n", file, len(picture)/1000)
	}
	return nil
}

// emailer starts the emailer, and says where its pages are. The returned function ends it.
func emailer(ctx context.Context, redis string) (base string, end func(), err error) {
	directory, err := os.MkdirTemp("", "screenshots-")
	if err != nil {
		return "", nil, err
	}
	program := filepath.Join(directory, "emailer")
	//nolint:gosec // a directory of our own
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/emailer")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	//nolint:gosec // what was built above
	cmd := exec.CommandContext(ctx, program, "-dashboard", "127.0.0.1:0", "-redis", redis)
	says, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(directory)
	}
	lines := bufio.NewScanner(says)
	for lines.Scan() {
		if at, is := strings.CutPrefix(lines.Text(), "dashboard at "); is {
			go func() { _, _ = io.Copy(io.Discard, says) }()
			return at, end, nil
		}
	}
	end()
	return "", nil, fmt.Errorf("the emailer does not say where its dashboard is: %w", lines.Err())
}
