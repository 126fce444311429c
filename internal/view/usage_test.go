package view_test

import (
	"testing"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestPromisedUnitsFill: a limit all of whose units are promised is fuller than one of which half are used. Global is
// among the keys of all scopes, also before anything was charged to it.
func TestPromisedUnitsFill(t *testing.T) {
	t.Parallel()
	scopes := []throttle.Scope{{Name: throttle.Global}, {Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}}}
	th, err := throttle.New(redistest.Name(t), redistest.Start(t).Client(t), scopes, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []throttle.Job{
		{ID: "half", Weight: 1, Keys: map[string]string{"tenant": "half"}},
		{ID: "promised", Weight: 2, Keys: map[string]string{"tenant": "promised"}, Plan: true},
	} {
		if _, err := th.Reserve(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	all, err := view.UsageOfAll(t.Context(), inspect.New(th), "", 20)
	if err != nil || len(all.Rows) != 3 || all.Rows[0].Key != "promised" || all.Rows[0].Booked != 2 ||
		all.Rows[1].Key != "half" || all.Rows[2].Scope != throttle.Global {
		t.Errorf("got %+v, %v; want the promised units first", all.Rows, err)
	}
}
