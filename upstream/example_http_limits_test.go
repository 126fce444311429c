package upstream_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/asynq-throttle/asynq-throttle/upstream"
)

// An upstream says with each response what is left of its limits: here the headers
// that OpenAI documents.
func ExampleHTTPLimits() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ratelimit-limit-requests", "60")
		w.Header().Set("x-ratelimit-remaining-requests", "59")
		w.Header().Set("x-ratelimit-reset-requests", "1s")
		w.Header().Set("x-ratelimit-limit-tokens", "150000")
		w.Header().Set("x-ratelimit-remaining-tokens", "149984")
		w.Header().Set("x-ratelimit-reset-tokens", "6m0s")
	}))
	defer api.Close()

	resp, err := http.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	for _, limit := range upstream.HTTPLimits(resp) {
		fmt.Printf("%s, %s: %d of %d left, whole again in %s\n",
			limit.Dialect, limit.Counts, limit.Remaining, limit.Units, limit.Reset)
	}
	// Output:
	// openai, requests: 59 of 60 left, whole again in 1s
	// openai, tokens: 149984 of 150000 left, whole again in 6m0s
}
