package reliability_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

// TestManyPutBackAtOnce_F41 puts a crowd of tasks back while all is paused, and then lets them
// run for a while: a put-back is one call of a script at most, its cost for Redis does not grow
// with the number of waiting tasks, and after the pause the tasks do not come all at once.
func TestManyPutBackAtOnce_F41(t *testing.T) {
	crowd := 4_000 // not in parallel: the test needs the whole machine
	switch {
	case os.Getenv(reliability.RowsVariable) != "":
		crowd = 100_000
	case !longtest.Watched:
		crowd = longtest.Of(4_000, 20_000)
	}
	d, server := apart(t)
	d.amid()
	_, err := inspect.New(d.throttle).Pause(t.Context(), throttle.Global, "", time.Now().Add(time.Hour))
	must(t, err)
	client := server.Client(t)
	before, calls, cpu := d.jobs, callsOf(t, client), cpuOf(t, client)
	ran := d.begun()
	var parts [4]time.Duration // Redis' CPU for each quarter of the crowd
	for i := range parts {
		d.enqueue(crowd / len(parts))
		d.until("all are put back", 3*time.Minute, func() bool {
			info, err := d.tasks.GetQueueInfo("default")
			return err == nil && info.Pending+info.Active == 0
		})
		now := cpuOf(t, client)
		parts[i], cpu = now-cpu, now
	}
	perJob := float64(callsOf(t, client)-calls) / float64(d.jobs-before)
	t.Logf("%d put back with %.3f calls of scripts each, Redis' CPU for each quarter of them: %v", d.jobs-before,
		perJob, parts)
	if perJob > 1.1 {
		timely(t, "%.3f calls of scripts for each put-back, want at most 1.1", perJob)
	}
	if parts[3] > 2*parts[0] {
		timely(t, "the last quarter cost Redis %s, the first one %s", parts[3], parts[0])
	}
	if late := d.begun() - ran; late > int(units) {
		t.Errorf("%d jobs started after the pause had begun, want only those that had been granted", late)
	}
	resumed, began := d.begun(), time.Now()
	_, err = inspect.New(d.throttle).Resume(t.Context(), throttle.Global, "")
	must(t, err)
	d.until("three windows have run", time.Minute, func() bool { return d.begun() > resumed+3*int(units) })
	row := reliability.Row{
		Cases: "F41", Done: "many put back during a pause; the first three windows after it", Servers: "the line",
		Jobs: d.jobs, Fault: 0, PutBack: float64(d.putBacks()) / float64(d.jobs),
	}
	for _, p := range d.processes {
		p.stop()
	}
	starts := d.all()
	row.Ran, row.Took = len(runs(starts)), time.Since(began)
	row.Decided, row.Started = d.firstAfter(began).Sub(began), starts[resumed].Begun.Sub(began)
	for _, o := range throttletest.Check(quotas, checkable(starts)) {
		t.Errorf("window over its limit: %s", o)
		row.Over++
	}
	d.write(row)
}

// callsOf returns how many scripts a server has run.
func callsOf(t *testing.T, client *redis.Client) int {
	t.Helper()
	return int(number(t, client, "commandstats", "cmdstat_evalsha:calls="))
}

// cpuOf returns how much CPU time a server has used.
func cpuOf(t *testing.T, client *redis.Client) time.Duration {
	t.Helper()
	return time.Duration(number(t, client, "cpu", "used_cpu_user:") * float64(time.Second))
}

// number returns the number behind a prefix in a section of INFO.
func number(t *testing.T, client *redis.Client, section, prefix string) float64 {
	t.Helper()
	text, err := client.Info(t.Context(), section).Result()
	must(t, err)
	_, rest, _ := strings.Cut(text, prefix)
	end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	n, err := strconv.ParseFloat(rest[:max(0, end)], 64)
	must(t, err)
	return n
}
