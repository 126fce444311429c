package main

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

// The dashboard shows the campaign while it runs.
func TestRunServesDashboard(t *testing.T) {
	t.Parallel()
	var page, limits string
	var looking sync.Once
	log := &cancelWriter{after: "  2 s  "}
	log.cancel = func() {
		looking.Do(func() {
			address := regexp.MustCompile(`http://127\S+/`).FindString(log.text.String())
			page, limits = get(t, address), get(t, address+"key?scope=tenant&key=tenant1")
		})
	}
	var out bytes.Buffer
	status := run(t.Context(), []string{"-campaign", writeCampaign(t, 60), "-limits",
		"global=8/250ms;tenant=5/250ms", "-dashboard", "127.0.0.1:0"}, &out, log)
	if status != rig.ExitOK {
		t.Fatalf("status %d\n%s", status, log.text.String())
	}
	for want, in := range map[string]string{
		"<title>Overview – emailer</title>": page, "8/250ms": page, "configured alike": page,
		"granted</span>": page, "5/250ms": limits,
	} {
		if !strings.Contains(in, want) {
			t.Errorf("no %q in\n%s", want, in)
		}
	}
	if status := run(t.Context(), []string{"-dashboard", "0.0.0.0:0"}, &out, log); status != rig.ExitUsage ||
		!strings.Contains(log.text.String(), "not on loopback") {
		t.Errorf("status %d\n%s", status, log.text.String())
	}
}
