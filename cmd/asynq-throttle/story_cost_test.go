package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// mostOfCore is the part of a core that one open page may take in addition to an idle server, in the serving
// process and in Redis together. The overview reads up to some 15 scope keys each second and took 1.16 % when it was
// measured for docs/guide/dashboard.md; the rest is for a busy machine.
const mostOfCore = 0.015

// TestDashboardIsCheap measures what open pages cost, for one browser and for many. With LONG=1 there are 105,000 jobs
// in line and 10,000 scope keys, and each case takes a minute.
func TestDashboardIsCheap(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	crowd(t, client, longtest.Of(5000, 105_000), longtest.Of(500, 5000))
	binary := filepath.Join(t.TempDir(), "asynq-throttle")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	idle := 0.0
	for _, c := range []struct {
		name  string
		pages []string
	}{
		{"no page open", nil},
		{"the overview, one browser", []string{""}},
		{"the overview, 20 browsers", slices.Repeat([]string{""}, 20)},
		{"a scope key, one browser", []string{"key&scope=tenant&key=t7"}},
		{"20 scope keys, a browser each", keyPages(20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			part := cost(t, binary, client, c.pages, longtest.Of(2, 60))
			if len(c.pages) == 0 {
				idle = part
			}
			if part-idle > mostOfCore && longtest.Full() && len(c.pages) == 1 {
				t.Errorf("more than %.1f %% of a core", 100*mostOfCore)
			}
		})
	}
}

// cost is what part of a core it takes to serve pages for some seconds.
func cost(t *testing.T, binary string, client *redis.Client, pages []string, seconds int) float64 {
	t.Helper()
	before, beforeCalls := redisTime(t, client), calls(t, client)
	cmd := exec.CommandContext(t.Context(), binary, "-u", "redis://"+client.Options().Addr, "serve", "big",
		"--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	base, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	look(t, strings.TrimSpace(base), pages, seconds)
	took := time.Since(began).Seconds()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	served := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds() / took
	redis := (redisTime(t, client) - before).Seconds() / took
	t.Logf("%.2f %% of a core: the pages %.2f %%, Redis %.2f %%; %.1f scripts a second", 100*(served+redis),
		100*served, 100*redis, float64(calls(t, client)-beforeCalls)/took)
	return served + redis
}

func keyPages(n int) []string {
	pages := make([]string, n)
	for i := range pages {
		pages[i] = fmt.Sprint("key&scope=tenant&key=t", i)
	}
	return pages
}

// look keeps pages open until each has received the given number of events.
func look(t *testing.T, base string, pages []string, times int) {
	t.Helper()
	done := make(chan error, len(pages))
	for _, page := range pages {
		go func() {
			done <- func() error {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"events?page="+page, http.NoBody)
				if err != nil {
					return err
				}
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				lines := bufio.NewScanner(response.Body)
				for n := 0; n < times && lines.Scan(); {
					switch {
					case lines.Text() == "": // the end of an event
						n++
					case strings.Contains(lines.Text(), "Nothing waits"):
						return fmt.Errorf("nobody waits on %s, which costs less", page)
					}
				}
				return lines.Err()
			}()
		}()
	}
	if len(pages) == 0 {
		<-time.After(time.Duration(times) * time.Second) // what goes on by itself
	}
	for range pages {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// calls is how many scripts clients have called.
func calls(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(info)
	if match == nil {
		return 0
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
