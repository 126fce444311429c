package worker_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A crawler's handler hands on that a host asks to be left alone.
func ExampleAskedToWait_http() {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer host.Close()

	fetch := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return worker.Untouched(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if wait, asked := upstream.HTTPWait(resp); asked {
			return worker.AskedToWait("host", wait, nil)
		}
		log.Print("fetched ", url)
		return nil
	}
	fmt.Println(fetch(context.Background(), host.URL))
	// Output:
	// worker: the upstream asks to wait 2m0s, scope host
}
