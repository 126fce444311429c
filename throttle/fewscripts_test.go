package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestFewScriptsBesideManyWhoWait: two jobs that are reserved at once cost one call, and few
// commands in it, whether ten or a hundred thousand others wait in their lane or beside it.
func TestFewScriptsBesideManyWhoWait(t *testing.T) {
	t.Parallel()
	const most = 60 // commands
	crowd := longtest.Of(20_000, 100_000)
	for name, tenant := range map[string]string{"in their lane": "crowd", "in another": "alone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t).Client(t)
			client, hook := hookedClient(t, server)
			th := newThrottle(t, client, tenantAndGlobal(throttle.PerHour(5), throttle.PerHour(10)),
				&throttle.Options{Lookahead: time.Second, Timeout: time.Minute})
			for first := 0; first < crowd; first += 1000 {
				jobs := make([]throttle.Job, 1000)
				for i := range jobs {
					jobs[i] = throttle.Job{ID: fmt.Sprint(first + i), Weight: 1, Keys: of("crowd")}
				}
				for _, answer := range th.ReserveAll(t.Context(), jobs) {
					if answer.Err != nil {
						t.Fatal(answer.Err)
					}
				}
			}
			hook.calls.Store(0)
			before := commandsRun(t, server)
			for i, answer := range th.ReserveAll(t.Context(),
				[]throttle.Job{{ID: "one", Weight: 1, Keys: of(tenant)}, {ID: "two", Weight: 1, Keys: of(tenant)}}) {
				if answer.Err != nil || (answer.Reservation.Outcome == throttle.Waiting) != (tenant == "crowd") {
					t.Errorf("job %d: %+v", i, answer)
				}
			}
			if calls, commands := hook.calls.Load(), commandsRun(t, server)-before; calls != 1 || commands > most {
				t.Errorf("%d calls with %d commands, want 1 with at most %d", calls, commands, most)
			}
		})
	}
}
