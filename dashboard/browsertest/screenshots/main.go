// Screenshots writes the pictures of the dashboard: it runs the emailer, looks at its pages
// in a browser, and writes what the browser shows.
//
//	go run ./screenshots ../../docs
//
// It needs chromium and redis-server.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/dashboard/browsertest"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// pictures are what is written: a page, how wide and high the picture is, and whether it is dark.
// The job is the one that is found in line when its page is opened.
var pictures = []struct {
	file, page    string
	width, height int64
	dark          bool
}{
	{"dashboard-overview.png", "", width, 1080, false},
	{"dashboard-key.png", "key?scope=tenant&key=acme", width, 860, false},
	{"dashboard-job.png", job, width, 640, false},
	{"dashboard-changes.png", "changes", width, 640, false},
	{"dashboard-processes.png", "processes", width, 420, false},
	{"dashboard-dark.png", "", width, 1080, true},
	{"dashboard-narrow.png", "", 400, 1200, false},
}

const (
	job    = "job"
	width  = 1000
	middle = 10 * time.Second // of the campaign, less the time for the pictures
	settle = 2 * time.Second  // for a page to have shown something new: the campaign has half a minute
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
		page, scheme := p.page, "light"
		if p.dark {
			scheme = "dark"
		}
		if p.page == job {
			if page, err = waitingJob(ctx, server.Addr); err != nil {
				return err
			}
		}
		prefers := emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}
		if _, err := chromedp.Call(browser, emulation.SetEmulatedMedia, prefers); err != nil {
			return err
		}
		if err := chromedp.Do(browser, chromedp.EmulateViewport(p.width, p.height)); err != nil {
			return err
		}
		if i > 0 {
			if err := chromedp.Do(browser, chromedp.Navigate(base+page)); err != nil {
				return err
			}
		}
		if err := chromedp.Do(browser, chromedp.Sleep(settle)); err != nil {
			return err
		}
		if err := capture(browser, filepath.Join(directory, p.file)); err != nil {
			return err
		}
	}
	return nil
}

// capture writes what the browser shows. It is an error if the page has lost its server.
func capture(browser context.Context, file string) error {
	gone, err := chromedp.Run(browser, chromedp.Evaluate[bool]("!document.getElementById('lost').hidden"))
	if err != nil {
		return err
	}
	if gone {
		return fmt.Errorf("%s: the pages do not answer, the campaign is over", file)
	}
	picture, err := chromedp.Run(browser, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil { //nolint:gosec // a picture for everybody
		return err
	}
	fmt.Printf("%s: %d kB\n", file, len(picture)/1000)
	return nil
}

// waitingJob is the page of a job in the middle of the longest lane.
func waitingJob(ctx context.Context, addr string) (page string, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	names, err := inspect.List(ctx, client)
	if err != nil || len(names) == 0 {
		return "", fmt.Errorf("no throttle is there: %w", err)
	}
	th, err := inspect.Attach(ctx, names[0], client)
	if err != nil {
		return "", err
	}
	lanes, err := th.Lanes(ctx)
	if err != nil || len(lanes) == 0 {
		return "", fmt.Errorf("nothing waits: %w", err)
	}
	longest := slices.MaxFunc(lanes, func(a, b inspect.Lane) int { return cmp.Compare(a.Jobs, b.Jobs) })
	jobs, _, err := th.Jobs(ctx, longest.Name, "")
	if err != nil || len(jobs) == 0 {
		return "", fmt.Errorf("nothing waits in %s: %w", longest.Name, err)
	}
	return "job?" + url.Values{"id": {jobs[len(jobs)/2].Job.ID}}.Encode(), nil
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
