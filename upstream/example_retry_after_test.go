package upstream_test

import (
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// The forms of Retry-After that upstreams send. A date is read as a wait from the time of the response.
func ExampleRetryAfter() {
	date := time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)
	for _, value := range []string{"120", "2.0", "1m2.5s", "Wed, 04 Mar 2026 12:00:30 GMT", "1772625630", "soon"} {
		fmt.Println(upstream.RetryAfter(value, date))
	}
	// Output:
	// 2m0s true
	// 2s true
	// 1m2.5s true
	// 30s true
	// 30s true
	// 0s false
}
