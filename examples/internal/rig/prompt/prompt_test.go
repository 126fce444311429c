package prompt_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	want := prompt.Prompt{ID: "p1", Kind: prompt.Batch, Customer: "acme", Text: "a \"b\"\n", MaxTokens: 7}
	got, err := prompt.Read(want.Payload())
	if err != nil || *got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for payload, reason := range map[string]string{"": "unexpected end", "{}": `"" is no kind`,
		`{"kind":"urgent"}`: `"urgent" is no kind`} {
		if _, err := prompt.Read([]byte(payload)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v, want %q", payload, err, reason)
		}
	}
}

func TestPrompts(t *testing.T) {
	t.Parallel()
	work := prompt.Work{Jobs: 600, Customers: 4, Seed: 1, Over: time.Minute}
	all := work.Prompts()
	ids, of, kinds := make(map[string]bool), make(map[string]int), make(map[prompt.Kind]int)
	for i, p := range all {
		ids[p.ID] = true
		of[p.Customer]++
		kinds[p.Kind]++
		if i > 0 && p.At < all[i-1].At || p.At > work.Over || p.Kind == prompt.Batch && p.At != 0 ||
			p.MaxTokens < 100 || p.Text == "" {
			t.Errorf("prompt %d: %+v", i, p)
		}
	}
	if len(ids) != 600 || len(of) != 4 || kinds[prompt.Interactive] != 200 || of["acme"] < 150 || of["acme"] > 300 {
		t.Errorf("%d ids, customers %v, kinds %v", len(ids), of, kinds)
	}
	if !reflect.DeepEqual(all, work.Prompts()) {
		t.Error("the same work has other prompts")
	}
	work.Seed = 2
	if reflect.DeepEqual(all, work.Prompts()) {
		t.Error("another seed draws the same prompts")
	}
	if one := (prompt.Work{Jobs: 1, Customers: 1}).Prompts(); len(one) != 1 || one[0].Customer != "acme" ||
		one[0].Kind != prompt.Interactive || one[0].At != 0 {
		t.Errorf("one prompt at once: %+v", one)
	}
	for _, p := range (prompt.Work{Jobs: 1000, Customers: 9}).Prompts() {
		of[p.Customer]++
	}
	if of["customer-8"] == 0 || len(of) != 9 {
		t.Errorf("nine customers: %v", of)
	}
}
