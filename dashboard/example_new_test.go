package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The pages of a throttle, in a program that has its own mux and its own users.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	runThrottle(client)

	pages, err := dashboard.New("smtp", client, &dashboard.Options{
		AllowChanges: true,
		Authorize: func(r *http.Request) error {
			if user, _, _ := r.BasicAuth(); r.Method == http.MethodPost && user != "ann" {
				return errors.New("only ann is on call")
			}
			return nil
		},
		Logger: zap.NewNop(), // logs each change, and who made it
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/throttle/", pages) // behind your own authentication
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	web.RegisterOnShutdown(pages.Close)

	w := httptest.NewRecorder()
	web.Handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet,
		"/admin/throttle/key?scope=tenant&key=acme", http.NoBody))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "2 of 100 used"))
	// Output: 200 true
}

// runThrottle is what another process does: it starts two jobs of acme.
func runThrottle(client *redis.Client) {
	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(100)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"mail-1", "mail-2"} {
		if _, err := th.Reserve(context.Background(),
			throttle.Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "acme"}}); err != nil {
			log.Fatal(err)
		}
	}
	for { // wait until the throttle has published its configuration
		if _, err := inspect.Attach(context.Background(), "smtp", client); err == nil {
			return
		}
	}
}
