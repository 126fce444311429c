package loopback

import (
	"context"
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestListen: nobody else can reach what has no authentication.
func TestListen(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "localhost:0": true, ":0": false, "0.0.0.0:0": false, "192.0.2.1:0": false,
		"example.com:0": false, "127.0.0.1": false,
	} {
		listener, err := Listen(t.Context(), addr)
		if (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil {
			_ = listener.Close()
		}
	}
}

// TestServe: it answers for its own names alone, and ends with the context, also a request
// that goes on.
func TestServe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stays" {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}))
	}()
	client := &http.Client{Transport: &http.Transport{}}
	ask := func(path, host string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+listener.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	for host, want := range map[string]int{
		"127.0.0.1:80": 200, "localhost": 200, "[::1]:8081": 200, "127.0.0.1": 200,
		"evil.example": 421, "127.0.0.1.evil.example:8081": 421, "192.0.2.1": 421,
	} {
		if got := ask("/", host); got != want {
			t.Errorf("host %q: %d, want %d", host, got, want)
		}
	}
	ask("/stays", "localhost")
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	client.CloseIdleConnections()
}
