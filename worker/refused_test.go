package worker_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// TestRefusedTasksComeBackWithRedis: tasks that came for their slots while Redis could not
// decide hold their bookings, so nobody else has that room. They run as soon as Redis
// decides again, however long their Backoff is.
func TestRefusedTasksComeBackWithRedis(t *testing.T) {
	t.Parallel()
	const tasks, a = 40, 10 // a window
	inBubble(t, perTenant(a, 10*time.Second), func(t *testing.T, w *world) {
		wire := newWire(w)
		th, err := throttle.New("world", wire.client, w.scopes, nil)
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
		before := shaper.Stats().Denied
		wire.cut()
		w.until("they came for their slots", 3*time.Second, func() bool { return shaper.Stats().Denied >= before+a })
		time.Sleep(time.Second) // their slots pass
		if got := shaper.Stats().Granted; got != a {
			t.Fatalf("%d tasks have started, want %d: this test has lost its object", got, a)
		}
		wire.mend()
		// The breaker tries again after half a second, and a call under way fails in a tenth.
		w.drained(2*a, time.Second)
		w.drained(tasks, time.Minute)
		w.checked(tasks)
	})
}
