package main

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

// The metrics can be scraped while a run lasts, and not after it.
func TestRunServesMetrics(t *testing.T) {
	t.Parallel()
	var address, page string
	var scraping sync.Once
	log := &cancelWriter{after: "  2 s  "}
	log.cancel = func() {
		scraping.Do(func() {
			address = regexp.MustCompile(`http://\S+/metrics`).FindString(log.text.String())
			page = get(t, address)
		})
	}
	var out bytes.Buffer
	status := run(t.Context(), []string{"-campaign", writeCampaign(t, 60), "-limits",
		"global=8/250ms;tenant=5/250ms", "-plan=false", "-metrics", "127.0.0.1:0"}, &out, log)
	if status != rig.ExitOK {
		t.Fatalf("status %d\n%s", status, log.text.String())
	}
	for _, want := range []string{
		`(?m)^throttle_decisions_total\{outcome="granted",source="redis",throttle="emailer"\} [1-9]`,
		`(?m)^throttle_units_total\{outcome="granted",source="redis",throttle="emailer"\} [1-9]`,
		`(?m)^throttle_put_backs_total\{reason="waiting",throttle="emailer"\} [1-9]`,
		`(?m)^throttle_start_lateness_seconds_count\{throttle="emailer"\} [1-9]`,
		`(?m)^throttle_script_duration_seconds_count\{script="pull",throttle="emailer"\} [1-9]`,
		`(?m)^throttle_used_ratio\{scope="global",throttle="emailer",window="250ms"\} (0(\.\d+)?|1)$`,
		`(?m)^throttle_used_ratio\{scope="tenant",throttle="emailer",window="250ms"\} (0(\.\d+)?|1)$`,
		`(?m)^go_goroutines [1-9]`,
	} {
		if !regexp.MustCompile(want).MatchString(page) {
			t.Errorf("no line like %s in\n%s", want, page)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
		t.Errorf("%s is served after the run", address)
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return string(page)
}
