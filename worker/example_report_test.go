package worker_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// An upstream has agreed to 100 calls a minute. Today it serves 60, says so in its headers,
// and then refuses a call without saying why. Each handler reports what it was told; all
// workers follow.
func ExampleReport() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/first":
			w.Header().Set("X-Ratelimit-Limit-Requests", "100")
			w.Header().Set("X-Ratelimit-Remaining-Requests", "99")
		case "/second":
			w.Header().Set("X-Ratelimit-Limit-Requests", "60")
			w.Header().Set("X-Ratelimit-Remaining-Requests", "58")
		default:
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	th, err := throttle.New("api", client, []throttle.Scope{
		{Name: "account", Limits: []throttle.Limit{throttle.PerMinute(100)}, Floor: 0.1}, // never below a tenth
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, func(context.Context, *asynq.Task) (throttle.Job, error) {
		return throttle.Job{Weight: 1, Keys: map[string]string{"account": "ours"}}, nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	workers := asynq.NewServerFromRedisClient(client,
		shaper.Configure(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap)
	told := make(chan string)
	mux.HandleFunc("call", func(ctx context.Context, task *asynq.Task) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+string(task.Payload()), http.NoBody)
		if err != nil {
			return worker.Untouched(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		wait, refused := upstream.HTTPWait(resp)
		said := throttle.Report{Refused: refused, RetryAfter: wait}
		for _, limit := range upstream.HTTPLimits(resp) {
			if limit.Counts == "requests" { // as the scope does
				its := throttle.ReportedLimit{Window: time.Minute, Units: limit.Units, Remaining: limit.Remaining}
				said.Limits = append(said.Limits, its)
			}
		}
		follows, err := worker.Report(ctx, "account", said)
		if err != nil {
			log.Print(err) // the limits stay as they were; no reason to ask the upstream again
		}
		told <- fmt.Sprintf("%s %d: %.2f is served", task.Payload(), resp.StatusCode, follows.Served)
		if refused {
			return worker.AskedToWait("account", wait, nil)
		}
		return nil
	})

	queue := asynq.NewClientFromRedisClient(client)
	for _, path := range []string{"/first", "/second", "/third"} {
		if _, err := queue.Enqueue(worker.NewTask("call", []byte(path), nil)); err != nil {
			log.Fatal(err)
		}
	}
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		fmt.Println(<-told)
	}
	usage, err := inspect.New(th).Usage(context.Background(), "account", "ours")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("of %s, paused: %t\n", usage.Limits[0].Limit, !usage.Paused.IsZero())

	shaper.Stop()
	workers.Shutdown()
	// Output:
	// /first 200: 1.00 is served
	// /second 200: 0.60 is served
	// /third 429: 0.42 is served
	// of 100/1m, paused: true
}
