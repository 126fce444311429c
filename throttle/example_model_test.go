package throttle_test

import (
	"fmt"
	"log"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// A test without Redis and without waiting: the model is given the time with each call.
// Check then counts the units that started in each window, independently of the throttle.
func Example_model() {
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(10)}}}
	model := throttletest.NewModel(scopes, throttle.Options{Lookahead: 24 * time.Hour})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

	var starts []throttletest.Start
	acme := map[string]string{"tenant": "acme"}
	for n := range 25 {
		r, err := model.Reserve(now, throttle.Job{ID: fmt.Sprintf("mail-%d", n), Weight: 1, Keys: acme})
		if err != nil {
			log.Fatal(err)
		}
		starts = append(starts, throttletest.Start{At: r.Start, Weight: 1, Keys: acme})
	}
	fmt.Println("the last starts after", starts[24].At.Sub(now))
	fmt.Println("windows over their limit:", len(throttletest.Check(scopes, starts)))
	// Output:
	// the last starts after 2h0m0s
	// windows over their limit: 0
}
