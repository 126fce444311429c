package upstream_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// A crawler without a queue asks how long a host wants to be left alone. What says 503 and not how
// long is left alone for as long as the crawler likes.
func ExampleHTTPWait() {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer host.Close()

	for _, path := range []string{"/", "/busy", "/down"} {
		resp, err := http.Get(host.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		wait, asked := upstream.HTTPWait(resp)
		fmt.Println(resp.StatusCode, asked, wait)
		resp.Body.Close()
	}
	// Output:
	// 200 false 0s
	// 429 true 2m0s
	// 503 true 0s
}
