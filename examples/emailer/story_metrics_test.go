package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

// expected are lines of the metrics that appear at some time during a run.
var expected = []string{
	`(?m)^throttle_decisions_total\{outcome="granted",source="redis",throttle="emailer"\} [1-9]`,
	`(?m)^throttle_units_total\{outcome="granted",source="redis",throttle="emailer"\} [1-9]`,
	`(?m)^throttle_put_backs_total\{reason="waiting",throttle="emailer"\} [1-9]`,
	`(?m)^throttle_start_lateness_seconds_count\{throttle="emailer"\} [1-9]`,
	`(?m)^throttle_script_duration_seconds_count\{script="pull",throttle="emailer"\} [1-9]`,
	`(?m)^throttle_used_ratio\{scope="global",throttle="emailer",window="250ms"\} (0(\.\d+)?|1)$`,
	`(?m)^throttle_used_ratio\{scope="tenant",throttle="emailer",window="250ms"\} (0(\.\d+)?|1)$`,
	`(?m)^go_goroutines [1-9]`,
}

// getUntil gets a page until each of the lines has appeared on it, or the run is over. It returns the lines that never
// appeared.
func getUntil(ctx context.Context, address string, lines ...string) []string {
	missing := slices.Clone(lines)
	for len(missing) > 0 {
		page, err := get(ctx, address)
		if err != nil {
			break
		}
		missing = slices.DeleteFunc(missing, func(line string) bool { return regexp.MustCompile(line).MatchString(page) })
		time.Sleep(20 * time.Millisecond)
	}
	return missing
}

// The metrics can be scraped while a run lasts, and not after it. A run that is over before all lines were there is
// tried again with more mails.
func TestRunServesMetrics(t *testing.T) {
	t.Parallel()
	var missing []string
	for _, mails := range []int{60, 240, 960} {
		if missing = scrapedRun(t, mails); len(missing) == 0 {
			return
		}
	}
	for _, line := range missing {
		t.Errorf("no line like %s was there in the run", line)
	}
}

// scrapedRun returns the lines that were missing while a run lasted.
func scrapedRun(t *testing.T, mails int) (missing []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var address string
	var scraping sync.Once
	var scraped sync.WaitGroup
	log := &cancelWriter{after: `http://\S+/metrics\n`}
	log.cancel = func() {
		scraping.Do(func() {
			address = regexp.MustCompile(`http://\S+/metrics`).FindString(log.text.String())
			scraped.Go(func() { missing = getUntil(ctx, address, expected...) })
		})
	}
	var out bytes.Buffer
	status := run(t.Context(), []string{"-campaign", writeCampaign(t, mails), "-limits",
		"global=8/250ms;tenant=5/250ms", "-plan=false", "-metrics", "127.0.0.1:0"}, &out, log)
	cancel()
	scraped.Wait()
	if status != rig.ExitOK {
		t.Fatalf("status %d\n%s", status, log.text.String())
	}
	if _, err := get(t.Context(), address); err == nil {
		t.Errorf("%s is served after the run", address)
	}
	return missing
}

func get(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	return string(page), err
}
