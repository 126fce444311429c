package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestServe: the pages are served until the command is interrupted. They change nothing without
// --changes. With it, they are served only to the browser that first asked for the printed address.
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
			address := strings.TrimSpace(line)
			base, ticket, has := strings.Cut(address, "?ticket=")
			if has != changes || has && len(ticket) < 20 {
				t.Errorf("%v prints %q", args, line)
			}
			browser := browserOf(t)
			if changes {
				stranger := browserOf(t)
				for _, asked := range []string{base, base + "?ticket=", base + "?ticket=x",
					base + "key?scope=tenant&key=acme", base + "events?page="} {
					visited(t, stranger, asked, http.StatusForbidden)
				}
				visited(t, browser, address, http.StatusOK)
				visited(t, stranger, address, http.StatusForbidden)
			}
			page := visited(t, browser, base+"key?scope=tenant&key=acme", http.StatusOK)
			if !strings.Contains(page, "2 of 2 used") || strings.Contains(page, `method="post"`) != changes {
				t.Errorf("%v\n%s", args, page)
			}
			interrupt()
			if got := <-status; got != 0 || errs.Len() > 0 {
				t.Errorf("exit status %d, %s", got, errs.String())
			}
		}
	})
}

// browserOf keeps cookies.
func browserOf(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// visited asks for an address, checks the status of the answer and returns the page.
func visited(t *testing.T, browser *http.Client, address string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		t.Errorf("%s: status %d, want %d, %v", address, response.StatusCode, status, err)
	}
	return string(page)
}
