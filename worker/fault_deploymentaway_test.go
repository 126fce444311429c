package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/owner"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

const deploymentKey = owner.DeploymentKey

// TestDeploymentKeepsItsThrottleWithoutAsynqsRedis: a deployment's own Redis is away for longer
// than ownership lasts, but the deployment still reaches the throttle's Redis. It keeps the
// throttle, and another deployment is refused all the time.
func TestDeploymentKeepsItsThrottleWithoutAsynqsRedis(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	const tasks, away = 50, 90 * time.Second
	rows := map[string]func(link *wire){
		"it refuses": (*wire).cut,
		"it does not answer for the deployment": func(link *wire) {
			hung := make(chan struct{})
			time.AfterFunc(away, func() { close(hung) })
			link.before(func(cmd redis.Cmder) {
				if args := cmd.Args(); len(args) > 1 && args[1] == deploymentKey {
					<-hung
				}
			})
		},
	}
	for name, goAway := range rows {
		t.Run(name, func(t *testing.T) {
			inBubble(t, perTenant(5, 10*time.Second), func(t *testing.T, w *world) {
				first, second := elsewhere(w), elsewhere(w)
				link := &wire{client: first.client}
				first.client.AddHook(link)
				first.enqueue(tasks)
				first.serve(first.shaper(&worker.Options{Logger: zap.NewNop()}))
				w.until("the first has begun", time.Minute, func() bool { return first.ran() > 0 })
				s := second.shaper(&worker.Options{Logger: zap.NewNop()})
				refused(t, s.Own(t.Context()))
				second.enqueue(tasks)
				second.serve(s)
				goAway(link)
				for began := time.Now(); time.Since(began) < away; time.Sleep(2 * time.Second) {
					if err := s.Own(t.Context()); err == nil {
						t.Errorf("the other deployment has the throttle after %s", time.Since(began))
						break
					}
				}
				link.mend()
				w.until("all tasks of the first have run", 5*time.Minute, func() bool { return first.ran() == tasks })
				if got := second.ran(); got != 0 {
					t.Errorf("%d of the other deployment's tasks have run, want none", got)
				}
			})
		})
	}
}

// TestLostThrottleIsNoticedWithoutAsynqsRedis: a deployment loses its throttle to another one
// while its own Redis is away. It is refused at once, and again when its Redis is back.
func TestLostThrottleIsNoticedWithoutAsynqsRedis(t *testing.T) {
	t.Parallel()
	inBubble(t, perTenant(5, 10*time.Second), func(t *testing.T, w *world) {
		first := elsewhere(w)
		link := &wire{client: first.client}
		first.client.AddHook(link)
		s := first.shaper(&worker.Options{Logger: zap.NewNop()})
		if err := s.Own(t.Context()); err != nil {
			t.Fatal(err)
		}
		link.cut()
		if err := w.redis.Set(owner.Key("world"), "another"); err != nil {
			t.Fatal(err)
		}
		if got := refused(t, s.Own(t.Context())).Owner; got != "another" {
			t.Errorf("the owner is %q, want the other deployment", got)
		}
		link.mend()
		refused(t, s.Own(t.Context()))
	})
}

// TestClientAsksOnceAtATime: while asynq's Redis does not answer, a Client enqueues for an hour.
// It has one open question for the owner all the time, not a new one every two seconds.
func TestClientAsksOnceAtATime(t *testing.T) {
	longtest.Unwatched(t)
	t.Parallel()
	inBubble(t, perTenant(5, time.Second), func(t *testing.T, w *world) {
		hanging := newWire(w)
		hung := make(chan struct{})
		var asked atomic.Int64
		hanging.before(func(cmd redis.Cmder) {
			if args := cmd.Args(); len(args) > 1 && args[1] == deploymentKey {
				asked.Add(1)
				<-hung
			}
		})
		client, err := worker.NewClient(w.throttle, hanging.client, jobOf, &worker.Options{Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			if _, err := client.Enqueue(t.Context(), worker.NewTask("mail", nil, headers("acme", 1))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second)
		}
		close(hung)
		time.Sleep(10 * time.Second)
		// One question writes the ID and reads it.
		if got := asked.Load(); got != 2 {
			t.Errorf("asynq's Redis was asked %d times by the questions left behind, want 2 by one", got)
		}
	})
}
