package browsertest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// hostile is a tenant that would like to be more than a name.
const hostile = `<img src=x onerror=alert(1)><script>alert("2")</script>'"&`

// world is a throttle in the middle of its work on a Redis of its own, and its pages, which
// allow changes.
type world struct {
	*testing.T
	server   *redistest.Server
	client   *redis.Client
	throttle *throttle.Throttle
	base     string
}

// newIdleWorld: nothing has happened under the throttle yet, but that it was looked at.
func newIdleWorld(t *testing.T) *world {
	t.Helper()
	w := newThrottle(t)
	if _, err := inspect.New(w.throttle).Usage(t.Context(), throttle.Global, ""); err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

// newWorld: acme and a hostile tenant have used their limits, and have jobs in line; one of
// acme's is a task of asynq; gmail.example is paused.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newThrottle(t)
	for _, tenant := range []string{"acme", hostile} {
		for i := range 5 {
			w.reserve(fmt.Sprint("mail-", len(tenant), "-", i), tenant)
		}
	}
	_, err := inspect.New(w.throttle).Pause(t.Context(), "domain", "gmail.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	asynqs := asynq.NewClientFromRedisClient(w.client)
	if _, err := asynqs.Enqueue(asynq.NewTask("mail:send", nil), asynq.Queue("mails"), asynq.TaskID("mail-4-4"),
		asynq.ProcessIn(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

func newThrottle(t *testing.T) *world {
	t.Helper()
	requireProgram(t)
	w := &world{T: t, server: redistest.Start(t)}
	w.client = w.server.Client(t)
	var err error
	w.throttle, err = throttle.New("smtp", w.client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(100)}, Floor: 0.1},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerHour(2)}},
		{Name: "domain", Optional: true},
	}, &throttle.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// serve serves the world's pages.
func (w *world) serve() {
	w.Helper()
	w.published()
	pages, err := dashboard.New("smtp", w.client,
		&dashboard.Options{AllowChanges: true, Asynqmon: "http://127.0.0.1:8080"})
	if err != nil {
		w.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/throttle/", pages)
	web := httptest.NewServer(mux)
	w.Cleanup(web.Close)
	w.Cleanup(pages.Close)
	w.base = web.URL + "/admin/throttle/"
}

func (w *world) reserve(id, tenant string) {
	w.Helper()
	job := throttle.Job{ID: worker.JobID("mails", id, 0), Weight: 1,
		Keys: map[string]string{"tenant": tenant, "domain": "web.example"}}
	if _, err := w.throttle.Reserve(w.Context(), job); err != nil {
		w.Fatal(err)
	}
}

// report has the limit of all follow an upstream that serves so many of its units.
func (w *world) report(units int64) {
	w.Helper()
	said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: units, Remaining: -1}}}
	if _, err := w.throttle.Report(w.Context(), throttle.Global, "", said); err != nil {
		w.Fatal(err)
	}
}

// published waits until the throttle's process has published itself.
func (w *world) published() {
	w.Helper()
	redistest.Await(w, "the process has published itself", func() bool {
		_, err := inspect.Attach(w.Context(), "smtp", w.client)
		return !errors.As(err, new(*inspect.AttachError))
	})
}

func (w *world) usage(scope, key string) inspect.Usage {
	w.Helper()
	u, err := inspect.New(w.throttle).Usage(w.Context(), scope, key)
	if err != nil {
		w.Fatal(err)
	}
	return u
}
