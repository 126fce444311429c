package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(longtest.Quiet(m)) }

// scopes have room for 10 units a minute in all, for 4 of one tenant and for none of
// an address.
var scopes = []throttle.Scope{
	{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(10)}, Floor: 0.1},
	{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(4), throttle.PerHour(100),
		{Units: throttle.Unlimited, Window: 24 * time.Hour}}, Floor: 0.1},
	{Name: "address", Limits: []throttle.Limit{throttle.PerMinute(0)}, Optional: true},
}

// observed is a throttle on the Redis at addr that a collector observes and watches.
func observed(t testing.TB, addr string, opts *metrics.Options,
	settings throttle.Options) (*metrics.Collector, *throttle.Throttle) {
	t.Helper()
	options := metrics.Options{}
	if opts != nil {
		options = *opts
	}
	if options.Timeout == 0 {
		options.Timeout = time.Minute // the machine may be busy
	}
	collector, err := metrics.New(&options)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	settings.Observer = collector
	if settings.Lookahead == 0 {
		settings.Lookahead = 400 * 24 * time.Hour // so that nothing waits in line
	}
	if settings.Timeout == 0 {
		settings.Timeout = time.Minute
	}
	th, err := throttle.New("mail", client, scopes, &settings)
	if err != nil {
		t.Fatal(err)
	}
	collector.Watch(inspect.New(th))
	return collector, th
}

func job(id, tenant string, weight int64) throttle.Job {
	return throttle.Job{ID: id, Weight: weight, Keys: map[string]string{"tenant": tenant}}
}

// families are the metrics of one scrape.
type families map[string]*dto.MetricFamily

// scrape asks for the metrics as Prometheus does.
func scrape(t *testing.T, collector *metrics.Collector) families {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	server := httptest.NewServer(promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	got, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// values returns the samples by their text, "name{label=value}"; a histogram has its count and
// sum.
func (f families) values() map[string]float64 {
	values := make(map[string]float64)
	for name, family := range f {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			sort.Strings(labels)
			key := name + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetHistogram() != nil:
				values[key] = float64(m.GetHistogram().GetSampleCount())
				values[key+" sum"] = m.GetHistogram().GetSampleSum()
			case m.GetGauge() != nil:
				values[key] = m.GetGauge().GetValue()
			default:
				values[key] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// want compares some of the samples.
func (f families) want(t *testing.T, want map[string]float64) {
	t.Helper()
	got := f.values()
	for key, value := range want {
		if is, there := got[key]; !there || is != value {
			t.Errorf("%s is %v (there: %v), want %v", key, is, there, value)
		}
	}
	if t.Failed() {
		t.Logf("scraped: %v", got)
	}
}

func TestScrape(t *testing.T) {
	t.Parallel()
	collector, th := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late := job("too late", "acme", 2)
	late.Deadline = time.Now()
	for _, j := range []throttle.Job{
		job("granted", "acme", 3), job("granted too", "globex", 1), job("booked", "acme", 2), late,
		job("too heavy", "acme", 50), job("no weight", "acme", -1),
	} {
		_, _ = th.Reserve(t.Context(), j)
	}
	_, _ = th.Reserve(ended, job("given up", "acme", 1))
	collector.Decided(throttle.Decision{Throttle: "mail", Err: &throttle.LineFullError{Scope: "tenant"}})

	got := scrape(t, collector)
	got.want(t, map[string]float64{
		"throttle_decisions_total{outcome=granted,source=redis,throttle=mail}":   2,
		"throttle_decisions_total{outcome=booked,source=redis,throttle=mail}":    1,
		"throttle_decisions_total{outcome=waiting,source=redis,throttle=mail}":   0,
		"throttle_decisions_total{outcome=too_late,source=redis,throttle=mail}":  1,
		"throttle_decisions_total{outcome=never_fits,source=none,throttle=mail}": 1,
		"throttle_decisions_total{outcome=invalid,source=none,throttle=mail}":    1,
		"throttle_decisions_total{outcome=cancelled,source=none,throttle=mail}":  1,
		"throttle_units_total{outcome=granted,source=redis,throttle=mail}":       4,
		"throttle_units_total{outcome=booked,source=redis,throttle=mail}":        2,
		"throttle_held_total{scope=tenant,throttle=mail,window=1m}":              2,
		"throttle_line_full_total{scope=tenant,throttle=mail}":                   1,
		"throttle_decisions_total{outcome=line_full,source=none,throttle=mail}":  1,
		"throttle_wait_seconds{outcome=granted,throttle=mail}":                   2,
		"throttle_wait_seconds{outcome=granted,throttle=mail} sum":               0,
		"throttle_wait_seconds{outcome=booked,throttle=mail}":                    1,
		"throttle_waited_seconds{priority=0,scope=global,throttle=mail}":         2,
		"throttle_waited_seconds{priority=0,scope=tenant,throttle=mail}":         2,
		"throttle_script_duration_seconds{script=reserve,throttle=mail}":         5,
		"throttle_script_duration_seconds{script=usage,throttle=mail}":           3, // by this very scrape: the scope keys
		"throttle_script_duration_seconds{script=lines,throttle=mail}":           2, // what waits, and what is set
		"throttle_fallbacks_total{failure=timeout,throttle=mail}":                0,
		"throttle_used_ratio{scope=global,throttle=mail,window=1m}":              0.4,
		"throttle_used_ratio{scope=tenant,throttle=mail,window=1m}":              0.75,
		"throttle_used_ratio{scope=tenant,throttle=mail,window=1h}":              0.03,
	})
	wait := got.values()["throttle_wait_seconds{outcome=booked,throttle=mail} sum"]
	if wait <= 50 || wait > 60 {
		t.Errorf("booked %v s away, want a minute", wait)
	}
	for name := range got.values() {
		if strings.Contains(name, "acme") || strings.Contains(name, "globex") || strings.Contains(name, "24h") {
			t.Errorf("a tenant, or a limit that is none, is told: %s", name)
		}
	}
}

// TestScrapeOfTheNearFuture: units that are granted for the near future have not started yet.
func TestScrapeOfTheNearFuture(t *testing.T) {
	t.Parallel()
	collector, th := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	for _, id := range []string{"now", "soon"} {
		j := job(id, "acme", 4)
		j.MaxWait = time.Hour
		if r, err := th.Reserve(t.Context(), j); err != nil || r.Outcome != throttle.Granted {
			t.Fatalf("got %v, %v", r.Outcome, err)
		}
	}
	scrape(t, collector).want(t, map[string]float64{
		"throttle_used_ratio{scope=tenant,throttle=mail,window=1m}": 1,
		"throttle_used_ratio{scope=global,throttle=mail,window=1m}": 0.4,
	})
}

// TestScrapeOfWhatWaits: flows are counted under the key that has no room for them: for all keys
// of a scope together, and for each named key by itself.
func TestScrapeOfWhatWaits(t *testing.T) {
	t.Parallel()
	opts := &metrics.Options{Keys: map[string][]string{"tenant": {"acme", "initech"}}}
	collector, th := observed(t, miniredis.RunT(t).Addr(), opts, throttle.Options{Lookahead: time.Second})
	for i, row := range []struct {
		tenant string
		weight int64
		want   throttle.Outcome
	}{
		{"acme", 4, throttle.Granted},
		{"globex", 4, throttle.Granted}, // 2 are left in all
		{"acme", 1, throttle.Waiting},   // for room of its own
		{"acme", 1, throttle.Waiting},   // in the same lane
		{"globex", 1, throttle.Waiting},
		{"hooli", 2, throttle.Granted},
		{"initech", 1, throttle.Waiting}, // for room of all
		{"umbrella", 1, throttle.Waiting},
		{"initech", 2, throttle.Waiting},
	} {
		if r, err := th.Reserve(t.Context(), job(fmt.Sprint(i), row.tenant, row.weight)); err != nil ||
			r.Outcome != row.want {
			t.Fatalf("job %d: got %v, %v, want %v", i, r.Outcome, err, row.want)
		}
	}
	scrape(t, collector).want(t, map[string]float64{
		"throttle_waiting_flows{scope=global,throttle=mail}":                 2,
		"throttle_blocked_keys{scope=global,throttle=mail}":                  1,
		"throttle_waiting_flows{scope=tenant,throttle=mail}":                 2,
		"throttle_blocked_keys{scope=tenant,throttle=mail}":                  2,
		"throttle_key_waiting_flows{key=acme,scope=tenant,throttle=mail}":    1,
		"throttle_key_waiting_flows{key=initech,scope=tenant,throttle=mail}": 0,
	})
}

// TestScrapeOfCosts: the busiest keys of a scope are the keys whose jobs take most of it. A key
// whose jobs take nothing of the scope is not asked for.
func TestScrapeOfCosts(t *testing.T) {
	t.Parallel()
	collector, th := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	j := job("a", "acme", 1)
	j.Keys["address"] = "10.0.0.1"
	j.Costs = map[string]int64{"address": 0, "tenant": 2}
	if _, err := th.Reserve(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, collector)
	got.want(t, map[string]float64{
		"throttle_units_total{outcome=granted,source=redis,throttle=mail}": 1,
		"throttle_used_ratio{scope=tenant,throttle=mail,window=1m}":        0.5,
		"throttle_used_ratio{scope=global,throttle=mail,window=1m}":        0.1,
	})
	for name := range got.values() {
		if strings.Contains(name, "scope=address") {
			t.Errorf("told of a scope that no job has taken of: %s", name)
		}
	}
}

// TestScrapeBeforeAnything: the counters that alerts read exist from the start, since Prometheus
// does not see the first count of a series that begins with it.
func TestScrapeBeforeAnything(t *testing.T) {
	t.Parallel()
	collector, _ := observed(t, miniredis.RunT(t).Addr(), nil, throttle.Options{})
	want := map[string]float64{"throttle_decisions_total{outcome=too_late,source=redis,throttle=mail}": 0}
	for _, outcome := range []string{"never_fits", "blocked", "invalid", "unavailable", "cancelled", "failed"} {
		want["throttle_decisions_total{outcome="+outcome+",source=none,throttle=mail}"] = 0
	}
	for _, source := range []string{"redis", "open", "local"} {
		want["throttle_decisions_total{outcome=granted,source="+source+",throttle=mail}"] = 0
	}
	scrape(t, collector).want(t, want)
}

// TestScrapeOfWhatWaited: how long a job waited is counted by its scopes and its priority, once
// Redis has granted it.
func TestScrapeOfWhatWaited(t *testing.T) {
	t.Parallel()
	collector, err := metrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	urgent, local := job("urgent", "acme", 1), job("local", "acme", 1)
	urgent.Priority, urgent.Keys["domain"] = 2, "gmail.com"
	for _, r := range []throttle.Reservation{
		{Job: urgent, Outcome: throttle.Granted, Waited: 90 * time.Second},
		{Job: job("at once", "acme", 1), Outcome: throttle.Granted},
		{Job: local, Outcome: throttle.Granted, Source: throttle.FallbackLocal},
		{Job: job("booked", "acme", 1), Outcome: throttle.Booked},
	} {
		collector.Decided(throttle.Decision{Throttle: "mail", Reservation: r})
	}
	scrape(t, collector).want(t, map[string]float64{
		"throttle_waited_seconds{priority=2,scope=global,throttle=mail}":     1,
		"throttle_waited_seconds{priority=2,scope=tenant,throttle=mail}":     1,
		"throttle_waited_seconds{priority=2,scope=domain,throttle=mail}":     1,
		"throttle_waited_seconds{priority=2,scope=domain,throttle=mail} sum": 90,
		"throttle_waited_seconds{priority=0,scope=tenant,throttle=mail}":     1,
		"throttle_waited_seconds{priority=0,scope=tenant,throttle=mail} sum": 0,
	})
}

func TestScrapeOfWhatIsNotDecided(t *testing.T) {
	t.Parallel()
	collector, err := metrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	happen(collector)
	scrape(t, collector).want(t, map[string]float64{
		"throttle_settlements_total{throttle=mail}":                                3,
		"throttle_settled_units_total{direction=returned,throttle=mail}":           6,
		"throttle_settled_units_total{direction=added,throttle=mail}":              2,
		"throttle_advanced_starts_total{throttle=mail}":                            1,
		"throttle_advance_units_total{event=charged,throttle=mail}":                20,
		"throttle_advance_units_total{event=started,throttle=mail}":                3,
		"throttle_pauses_total{scope=domain,throttle=mail}":                        1,
		"throttle_adaptations_total{direction=lowered,scope=tenant,throttle=mail}": 2,
		"throttle_adaptations_total{direction=raised,scope=tenant,throttle=mail}":  1,
		"throttle_ended_total{reason=too_late,throttle=mail}":                      1,
		"throttle_ended_total{reason=never_fits,throttle=mail}":                    1,
		"throttle_ended_total{reason=no_time,throttle=mail}":                       1,
		"throttle_put_backs_total{reason=booked,throttle=mail}":                    1,
		"throttle_put_backs_total{reason=waiting,throttle=mail}":                   1,
		"throttle_put_backs_total{reason=stopped,throttle=mail}":                   1,
		"throttle_put_backs_total{reason=unavailable,throttle=mail}":               1,
		"throttle_put_backs_total{reason=blocked,throttle=mail}":                   1,
		"throttle_put_backs_total{reason=asked,throttle=mail}":                     1,
		"throttle_decisions_total{outcome=blocked,source=none,throttle=mail}":      1,
		"throttle_held_total{scope=domain,throttle=mail,window=pause}":             1,
		"throttle_shadowed_total{scope=tenant,throttle=mail,window=1m}":            1,
		"throttle_start_lateness_seconds{throttle=mail}":                           1,
		"throttle_start_lateness_seconds{throttle=mail} sum":                       0.02,
		"throttle_decisions_total{outcome=failed,source=none,throttle=mail}":       1,
		"throttle_decisions_total{outcome=granted,source=open,throttle=mail}":      1,
		"throttle_units_total{outcome=granted,source=open,throttle=mail}":          5,
		"throttle_decisions_total{outcome=granted,source=redis,throttle=mail}":     4,
		"throttle_wait_seconds{outcome=granted,throttle=mail}":                     6,
		"throttle_script_failures_total{failure=oom,script=reserve,throttle=mail}": 1,
		"throttle_fallbacks_total{failure=oom,throttle=mail}":                      1,
	})
}

// happen sends a collector an event of each kind.
func happen(c *metrics.Collector) {
	const name = "mail"
	hold := &throttle.Hold{Scope: "tenant", Limit: throttle.PerMinute(4)}
	c.Decided(throttle.Decision{Throttle: name, Err: fmt.Errorf("what now: %w", throttle.ErrState)})
	c.Decided(throttle.Decision{Throttle: name, Reservation: throttle.Reservation{
		Job: job("unchecked", "acme", 5), Outcome: throttle.Granted, Source: throttle.FallbackOpen, Hold: hold,
	}})
	c.Decided(throttle.Decision{Throttle: name, Reservation: throttle.Reservation{
		Job: job("its answer was lost", "acme", 5), Outcome: throttle.Granted, Replayed: true,
	}})
	c.Decided(throttle.Decision{Throttle: name, Advance: 20, Reservation: throttle.Reservation{
		Job: job("takes units along", "acme", 1), Outcome: throttle.Granted,
	}})
	c.Decided(throttle.Decision{Throttle: name, Advance: 7, Reservation: throttle.Reservation{
		Job: job("took units along, and its answer was lost", "acme", 1), Outcome: throttle.Granted, Replayed: true,
	}})
	c.Decided(throttle.Decision{Throttle: name, Reservation: throttle.Reservation{
		Job: job("starts out of them", "acme", 3), Outcome: throttle.Granted, Advanced: true,
	}})
	c.FellBack(throttle.Outage{Throttle: name, Failure: "oom", Answered: throttle.FallbackOpen})
	c.Called(throttle.ScriptCall{Throttle: name, Script: "reserve", Took: time.Millisecond, Failure: "oom"})
	c.Settled(throttle.Settlement{Throttle: name, Charged: 10, Actual: 4})
	c.Settled(throttle.Settlement{Throttle: name, Charged: 1, Actual: 3})
	c.Settled(throttle.Settlement{Throttle: name, Charged: 5, Actual: 5})
	c.Paused(throttle.Pause{Throttle: name, Scope: "domain", Key: "gmail.com"})
	for _, parts := range [][2]float64{{1, 0.7}, {0.7, 0.49}, {0.49, 0.59}} {
		c.Adapted(throttle.Adaptation{Throttle: name, Scope: "tenant", Key: "acme", Before: parts[0], Served: parts[1]})
	}
	c.Started(throttle.Lateness{Throttle: name, Late: 20 * time.Millisecond})
	for _, outcome := range []throttle.Outcome{throttle.Booked, throttle.Waiting, throttle.Granted} {
		c.PutBack(throttle.PutBack{Throttle: name, Reservation: throttle.Reservation{Outcome: outcome}})
	}
	c.Ended(throttle.Ending{Throttle: name, Err: &throttle.DeadlineError{}})
	c.Ended(throttle.Ending{Throttle: name, Err: &throttle.NeverFitsError{}})
	c.Ended(throttle.Ending{Throttle: name, Err: errors.New("no start within its Timeout")})
	c.PutBack(throttle.PutBack{Throttle: name, Err: throttle.ErrUnavailable})
	c.PutBack(throttle.PutBack{Throttle: name, Err: &throttle.BlockedError{}})
	c.PutBack(throttle.PutBack{Throttle: name, Err: errors.New("the upstream asked to wait")})
	c.Decided(throttle.Decision{Throttle: name, Err: &throttle.BlockedError{}})
	c.Decided(throttle.Decision{Throttle: name, Err: &throttle.LineFullError{Scope: throttle.Global}})
	c.Decided(throttle.Decision{Throttle: name, Reservation: throttle.Reservation{
		Outcome: throttle.Booked, Hold: &throttle.Hold{Scope: "domain", Paused: true},
	}})
	c.Decided(throttle.Decision{Throttle: name, Reservation: throttle.Reservation{
		Outcome: throttle.Granted, Source: throttle.FallbackLocal,
		Shadow: &throttle.Hold{Scope: "tenant", Limit: throttle.PerMinute(1)},
	}})
}

func TestScrapeOfNamedKeys(t *testing.T) {
	t.Parallel()
	opts := &metrics.Options{Keys: map[string][]string{
		"tenant": {"acme", "nobody", "acme"}, "address": {"10.0.0.1"}, "no such scope": {"example.org"},
	}}
	collector, th := observed(t, miniredis.RunT(t).Addr(), opts, throttle.Options{})
	for i, tenant := range []string{"acme", "globex", "globex"} {
		if _, err := th.Reserve(t.Context(), job(fmt.Sprint(i), tenant, 1)); err != nil {
			t.Fatal(err)
		}
	}
	got := scrape(t, collector)
	got.want(t, map[string]float64{
		"throttle_key_used_ratio{key=acme,scope=tenant,throttle=mail,window=1m}":   0.25,
		"throttle_key_used_ratio{key=acme,scope=tenant,throttle=mail,window=1h}":   0.01,
		"throttle_key_used_ratio{key=nobody,scope=tenant,throttle=mail,window=1m}": 0,
		"throttle_used_ratio{scope=tenant,throttle=mail,window=1m}":                0.5,
		"throttle_key_waiting_flows{key=acme,scope=tenant,throttle=mail}":          0,
		// A limit of 0 is full.
		"throttle_key_used_ratio{key=10.0.0.1,scope=address,throttle=mail,window=1m}": 1,
	})
	if n := len(got["throttle_key_used_ratio"].GetMetric()); n != 5 {
		t.Errorf("%d series, want two of each named tenant and one of the address", n)
	}
}

// TestScrapeOfWhatIsServed: a scrape reports the lowest served share of a scope's busiest keys, the
// share of each named key, and how often the shares of all keys changed.
func TestScrapeOfWhatIsServed(t *testing.T) {
	t.Parallel()
	opts := &metrics.Options{Keys: map[string][]string{"tenant": {"acme", "globex", "hooli"}}}
	collector, th := observed(t, miniredis.RunT(t).Addr(), opts, throttle.Options{})
	for _, tenant := range []string{"acme", "globex"} {
		if _, err := th.Reserve(t.Context(), job(tenant, tenant, 1)); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(scope, key string, units int64) {
		said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: units, Remaining: -1}}}
		if _, err := th.Report(t.Context(), scope, key, said); err != nil {
			t.Fatal(err)
		}
	}
	scrape(t, collector).want(t, map[string]float64{
		"throttle_served_ratio{scope=global,throttle=mail}":              1,
		"throttle_served_ratio{scope=tenant,throttle=mail}":              1,
		"throttle_key_served_ratio{key=acme,scope=tenant,throttle=mail}": 1,
	})
	serves(throttle.Global, "", 9)
	serves("tenant", "acme", 2)
	serves("tenant", "acme", 2) // as before
	serves("tenant", "globex", 3)
	serves("tenant", "hooli", 1) // that has no units
	scrape(t, collector).want(t, map[string]float64{
		"throttle_served_ratio{scope=global,throttle=mail}":                        0.9,
		"throttle_served_ratio{scope=tenant,throttle=mail}":                        0.5,
		"throttle_key_served_ratio{key=acme,scope=tenant,throttle=mail}":           0.5,
		"throttle_key_served_ratio{key=globex,scope=tenant,throttle=mail}":         0.75,
		"throttle_key_served_ratio{key=hooli,scope=tenant,throttle=mail}":          0.25,
		"throttle_adaptations_total{direction=lowered,scope=global,throttle=mail}": 1,
		"throttle_adaptations_total{direction=lowered,scope=tenant,throttle=mail}": 3,
		"throttle_script_duration_seconds{script=report,throttle=mail}":            5,
	})
}

// TestScrapeWithoutRedis: a scrape without Redis lacks the ratios and has all else.
func TestScrapeWithoutRedis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	collector, th := observed(t, server.Addr(), nil, throttle.Options{})
	if _, err := th.Reserve(t.Context(), job("a", "acme", 1)); err != nil {
		t.Fatal(err)
	}
	server.SetError("OOM command not allowed when used memory > 'maxmemory'")
	if _, err := th.Reserve(t.Context(), job("b", "acme", 1)); !errors.Is(err, throttle.ErrUnavailable) {
		t.Fatal(err)
	}
	got := scrape(t, collector)
	got.want(t, map[string]float64{
		"throttle_decisions_total{outcome=granted,source=redis,throttle=mail}":     1,
		"throttle_decisions_total{outcome=unavailable,source=none,throttle=mail}":  1,
		"throttle_fallbacks_total{failure=oom,throttle=mail}":                      1,
		"throttle_script_failures_total{failure=oom,script=reserve,throttle=mail}": 1,
		"throttle_script_failures_total{failure=oom,script=usage,throttle=mail}":   2,
		"throttle_script_failures_total{failure=oom,script=lines,throttle=mail}":   1,
	})
	for _, name := range []string{"throttle_used_ratio", "throttle_served_ratio", "throttle_waiting_flows",
		"throttle_blocked_keys"} {
		if asked := got[name]; asked != nil {
			t.Errorf("told without Redis: %v", asked)
		}
	}
}

// TestScrapeOfStalledRedis: a scrape ends in time. Its giving up does not open the breaker, which
// would keep decisions from Redis.
func TestScrapeOfStalledRedis(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	collector, th := observed(t, silent.Addr().String(), &metrics.Options{Timeout: 20 * time.Millisecond},
		throttle.Options{Timeout: 200 * time.Millisecond, BreakAfter: 1, BreakPeriod: time.Hour})
	if ratios := scrape(t, collector)["throttle_used_ratio"]; ratios != nil {
		t.Errorf("told without Redis: %v", ratios)
	}
	_, err = th.Reserve(t.Context(), job("a", "acme", 1))
	var unavailable *throttle.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Failure != "timeout" {
		t.Errorf("got %v, want a timeout: the scrape opened the breaker", err)
	}
}

// TestScrapeOfForeignData: foreign data under one tenant's key hides no other tenant.
func TestScrapeOfForeignData(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	collector, th := observed(t, server.Addr(), nil, throttle.Options{})
	for _, tenant := range []string{"acme", "globex"} {
		if _, err := th.Reserve(t.Context(), job(tenant, tenant, 2)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range server.Keys() {
		if strings.Contains(key, ":acme") && strings.Contains(key, "key:") {
			if err := server.Set(key, "foreign"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := inspect.New(th).Usage(t.Context(), "tenant", "acme"); !errors.Is(err, throttle.ErrState) {
		t.Fatalf("got %v, want ErrState", err)
	}
	scrape(t, collector).want(t, map[string]float64{"throttle_used_ratio{scope=tenant,throttle=mail,window=1m}": 0.5})
}
