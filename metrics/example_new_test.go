package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A registry of the program's own, served over HTTP.
func ExampleNew() {
	server, err := miniredis.Run() // stands for any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(4)}}}

	collector, err := metrics.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	th, err := throttle.New("smtp", client, scopes, &throttle.Options{Observer: collector, Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	collector.Watch(inspect.New(th))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	if _, err := th.Reserve(context.Background(),
		throttle.Job{ID: "mail-1", Weight: 3, Keys: map[string]string{"tenant": "acme"}}); err != nil {
		log.Fatal(err)
	}
	page := httptest.NewRecorder()
	handler.ServeHTTP(page, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "throttle_used_ratio") ||
			strings.HasPrefix(line, `throttle_units_total{outcome="granted"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// throttle_units_total{outcome="granted",source="redis",throttle="smtp"} 3
	// throttle_used_ratio{scope="tenant",throttle="smtp",window="1m"} 0.75
}
