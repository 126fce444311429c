package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// hostile is a tenant that would like to be more than a name.
const hostile = `<script>alert("1")</script>`

var scopes = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}, Floor: 0.1},
	{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}},
	{Name: "domain", Optional: true},
	{Name: "connections", Optional: true, Limits: []throttle.Limit{throttle.Running(2)}},
}

// world is a throttle in the middle of its work, on a Redis inside the process.
type world struct {
	*testing.T
	server   *miniredis.Miniredis
	client   *redis.Client
	throttle *throttle.Throttle
}

// newWorld returns a world in which acme and a hostile tenant have used their limits and have jobs
// in line; one job of acme is a task of asynq; gmail.example is paused; and the upstream serves 60 %
// of the limit of all.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, server: miniredis.RunT(t)}
	w.client = redis.NewClient(&redis.Options{Addr: w.server.Addr(), DialTimeout: 100 * time.Millisecond, MaxRetries: -1})
	t.Cleanup(func() { _ = w.client.Close() })
	var err error
	if w.throttle, err = throttle.New("smtp", w.client, scopes, &throttle.Options{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, tenant := range []string{"acme", hostile} {
		for i := range 5 {
			id := worker.JobID("mails", fmt.Sprint("mail-", len(tenant), "-", i), 0)
			job := throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": tenant, "domain": "web.example"}}
			if _, err := w.throttle.Reserve(ctx, job); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := inspect.New(w.throttle).Pause(ctx, "domain", "gmail.example", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 60, Remaining: -1}}}
	if _, err := w.throttle.Report(ctx, throttle.Global, "", said); err != nil {
		t.Fatal(err)
	}
	if _, err := asynq.NewClientFromRedisClient(w.client).Enqueue(asynq.NewTask("mail:send", nil),
		asynq.Queue("mails"), asynq.TaskID("mail-4-4"), asynq.ProcessIn(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.published()
	return w
}

// published waits until the throttle's process has published itself.
func (w *world) published() {
	w.Helper()
	redistest.Await(w, "the process has published itself", func() bool {
		_, err := inspect.Attach(w.Context(), "smtp", w.client)
		return !errors.As(err, new(*inspect.AttachError))
	})
}

// pages returns the pages of the world.
func (w *world) pages(opts *dashboard.Options) *dashboard.Handler {
	w.Helper()
	h, err := dashboard.New("smtp", w.client, opts)
	if err != nil {
		w.Fatal(err)
	}
	return h
}

// answer is the response of a page.
type answer struct {
	status int
	text   string
	header http.Header
}

// get asks for a page.
func get(ctx context.Context, h http.Handler, target string) answer {
	return ask(h, httptest.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody))
}

// post sends a form from the pages' own origin.
func post(ctx context.Context, h http.Handler, fields ...string) answer {
	return ask(h, form(ctx, fields...))
}

// form is a request of names and values.
func form(ctx context.Context, fields ...string) *http.Request {
	values := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/key", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func ask(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		panic(err)
	}
	return answer{w.Code, string(text), w.Header()}
}
