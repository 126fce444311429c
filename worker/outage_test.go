package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestRefusedTasksComeBackWithRedis: tasks that came for their slots while Redis could not
// decide keep their bookings, so no other task gets that room. They run as soon as Redis
// decides again, however long their Backoff is.
func TestRefusedTasksComeBackWithRedis(t *testing.T) {
	t.Parallel()
	const tasks, a = 40, 10 // a window
	inBubble(t, perTenant(a, 10*time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, w.scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		shaper, err := worker.New(th, w.client, jobOf, &worker.Options{Backoff: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(shaper.Stop)
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		w.serveWith(shaper, asynq.Config{Concurrency: 4})
		w.drained(a, time.Minute)
		w.until("the next are booked", time.Minute, func() bool { _, booked := w.used("acme"); return booked == a })
		before := shaper.Stats().PutBack
		wire.cut()
		w.until("they came for their slots", 3*time.Second, func() bool { return shaper.Stats().PutBack >= before+a })
		time.Sleep(time.Second) // their slots pass
		if got := shaper.Stats().Granted; got != a {
			t.Fatalf("%d tasks have started, want %d: this test has tested nothing", got, a)
		}
		wire.mend()
		// The breaker tries again after half a second, and a call under way fails in a tenth.
		w.drained(2*a, time.Second)
		w.drained(tasks, time.Minute)
		w.checked(tasks)
	})
}

// TestPutBackSeldomWhileRedisIsAway: while Redis cannot decide, a task is put back ever less
// often; with Redis' first answer all tasks come back, however long the outage lasted.
func TestPutBackSeldomWhileRedisIsAway(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const tasks, outage = 20, 10 * time.Minute
	inBubble(t, perTenant(100, time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, w.scopes, &throttle.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		shaper, err := worker.New(th, w.client, jobOf, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(shaper.Stop)
		w.serveWith(shaper, asynq.Config{Concurrency: tasks})
		wire.cut()
		for n := range tasks {
			w.enqueue(n, "acme", 1)
		}
		putBack := func() float64 { return float64(shaper.Stats().PutBack) / tasks }
		time.Sleep(outage / 2)
		half := putBack()
		time.Sleep(outage / 2)
		t.Logf("each task was put back %.1f times in %s, %.1f times in the second half", putBack(), outage, putBack()-half)
		if first := half; first > 15 {
			t.Errorf("each task was put back %.1f times in %s, want at most 15", first, outage/2)
		}
		if later := putBack() - half; later < 4 || later > 9 {
			t.Errorf("each task was put back %.1f times in %s, want once in half a minute to a minute", later, outage/2)
		}
		wire.mend()
		w.drained(tasks, 2*time.Second)
		w.checked(tasks)
		w.archived(0)
	})
}
