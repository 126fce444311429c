package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

// The dashboard shows the campaign while it runs.
func TestRunServesDashboard(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var missing []string
	var once sync.Once
	var looking sync.WaitGroup
	log := &cancelWriter{after: `http://127\S+/\s`}
	log.cancel = func() {
		once.Do(func() {
			address := regexp.MustCompile(`http://127\S+/`).FindString(log.text.String())
			looking.Go(func() {
				missing = append(getUntil(ctx, address, "<title>Overview – emailer</title>", "8/250ms", "configured alike",
					"granted</span>"), getUntil(ctx, address+"key?scope=tenant&key=tenant1", "5/250ms")...)
			})
		})
	}
	var out bytes.Buffer
	status := run(t.Context(), []string{"-campaign", writeCampaign(t, 60), "-limits",
		"global=8/250ms;tenant=5/250ms", "-dashboard", "127.0.0.1:0"}, &out, log)
	cancel()
	looking.Wait()
	if status != rig.ExitOK {
		t.Fatalf("status %d\n%s", status, log.text.String())
	}
	for _, text := range missing {
		t.Errorf("no page had %q in the run", text)
	}
	if status := run(t.Context(), []string{"-dashboard", "0.0.0.0:0"}, &out, log); status != rig.ExitUsage ||
		!strings.Contains(log.text.String(), "not on loopback") {
		t.Errorf("status %d\n%s", status, log.text.String())
	}
}
