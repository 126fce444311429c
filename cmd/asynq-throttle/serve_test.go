package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestServe: the pages are served until the command is interrupted, and change nothing
// unless they may.
func TestServe(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, changes := range []bool{false, true} {
			args := []string{"-u", "redis://" + client.Options().Addr, "serve", "smtp", "--listen", "127.0.0.1:0"}
			if changes {
				args = append(args, "--changes")
			}
			ctx, interrupt := context.WithCancel(t.Context())
			out, says := io.Pipe()
			var errs bytes.Buffer
			p := &program{out: says, errs: &errs}
			status := make(chan int, 1)
			go func() {
				status <- p.run(ctx, args)
				_ = says.Close()
			}()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("%v: %s", err, errs.String())
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(line)+"key?scope=tenant&key=acme", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			page, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(page), "2 of 2 used") || strings.Contains(string(page), `method="post"`) != changes {
				t.Errorf("%v: status %d, %v\n%s", args, response.StatusCode, err, page)
			}
			interrupt()
			if got := <-status; got != 0 || errs.Len() > 0 {
				t.Errorf("exit status %d, %s", got, errs.String())
			}
		}
	})
}
