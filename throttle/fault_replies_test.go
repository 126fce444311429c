package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestF01_F21_ReplyLostIsSentAgainByTheClient: the script ran and its reply was
// lost; go-redis, with its defaults, asks again by itself. One charge, the same
// answer.
func TestF01_F21_ReplyLostIsSentAgainByTheClient(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		th := newThrottle(t, defaultClient(t, proxy.Addr), scopes, &throttle.Options{Timeout: patient})
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1})

		proxy.DropNextReply("evalsha")
		got := reserve(t, th, throttle.Job{ID: "lost", Weight: 4})
		if proxy.Dropped() != 1 {
			t.Fatalf("%d replies were lost, want 1", proxy.Dropped())
		}
		if got.Outcome != throttle.Granted || got.Source != throttle.FallbackClosed {
			t.Errorf("granted, reply lost: got %+v, want granted", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4 {
			t.Errorf("granted, reply lost: %d units used, want 5", u)
		}

		first := reserve(t, th, throttle.Job{ID: "full", Weight: 6})
		proxy.DropNextReply("evalsha")
		got = reserve(t, th, throttle.Job{ID: "late", Weight: 5})
		if got.Outcome != throttle.Booked || !got.Start.After(first.Now) || got.Replayed {
			t.Errorf("booked, reply lost: got %+v, want booked", got)
		}
		if u, b := used(t, direct, th.Name(), scopes); u != 5 || b != 6+5 {
			t.Errorf("booked, reply lost: %d used and %d booked, want 5 and 11", u, b)
		}

		proxy.DropNextReply("evalsha")
		if _, err := th.Cancel(t.Context(), throttle.Job{ID: "late", Weight: 5}); err != nil {
			t.Errorf("cancel, reply lost: %v", err)
		}
		if u, b := used(t, direct, th.Name(), scopes); u != 5 || b != 6 {
			t.Errorf("cancel, reply lost: %d used and %d booked, want 5 and 6", u, b)
		}
		if proxy.Dropped() != 3 {
			t.Errorf("%d replies were lost, want 3", proxy.Dropped())
		}
	})
}

// TestF01_ReplyLostIsAskedAgainByTheCaller: the same, with a client that gives up;
// the caller asks again with the nonce from the error.
func TestF01_ReplyLostIsAskedAgainByTheCaller(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		th := newThrottle(t, onceClient(t, proxy.Addr), scopes, &throttle.Options{Timeout: patient})
		reserve(t, th, throttle.Job{ID: "warm", Weight: 1})

		proxy.DropNextReply("evalsha")
		job, asked := throttle.Job{ID: "lost", Weight: 4}, time.Now()
		_, err := th.Reserve(t.Context(), job)
		u := unavailable(t, "reply lost", err, "other")
		if u.Job != "lost" || u.Nonce == "" {
			t.Fatalf("reply lost: got %+v, want the job and the nonce that was used", u)
		}
		job.Nonce = u.Nonce
		got := reserve(t, th, job)
		if got.Outcome != throttle.Granted || !got.Replayed && isKept(asked) || got.Job.Nonce != u.Nonce {
			t.Errorf("asked again: got %+v, want granted and replayed", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4 {
			t.Errorf("asked again: %d units used, want 5", u)
		}
		// Once it is answered, and without the nonce, it is another decision.
		job.Nonce = ""
		if got := reserve(t, th, job); got.Outcome != throttle.Granted || got.Replayed {
			t.Errorf("asked anew: got %+v, want granted anew", got)
		}
		if u, _ := used(t, direct, th.Name(), scopes); u != 1+4+4 {
			t.Errorf("asked anew: %d units used, want 9", u)
		}
	})
}

// TestF01_ReplyToAnyRequestLost: whichever of the first requests loses its reply (the
// greeting, NOSCRIPT, SCRIPT LOAD, the decision), the job is charged once.
func TestF01_ReplyToAnyRequestLost(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		for n := 1; n <= 6; n++ {
			lost := proxy.Dropped()
			scopes := globalScope(throttle.PerHour(10))
			client := defaultClient(t, proxy.Addr)
			th := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient})
			if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			proxy.DropReply("", n)
			if got := reserve(t, th, throttle.Job{ID: "x", Weight: 4}); got.Outcome != throttle.Granted {
				t.Errorf("reply %d lost: got %+v, want granted", n, got)
			}
			if u, _ := used(t, direct, th.Name(), scopes); u != 4 {
				t.Errorf("reply %d lost: %d units used, want 4", n, u)
			}
			// Where there were fewer requests, use the loss up.
			for proxy.Dropped() == lost {
				_ = client.Ping(t.Context()).Err()
			}
		}
	})
}

// TestF02_StalledReply: the throttle's own timeout frees the caller although the client
// would wait for seconds. The request still arrives; the job asks again with the nonce,
// and is charged once.
func TestF02_StalledReply(t *testing.T) {
	t.Parallel()
	behindProxy(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		scopes := globalScope(throttle.PerHour(10))
		client := defaultClient(t, proxy.Addr)
		warm := newThrottle(t, client, scopes, &throttle.Options{Timeout: patient})
		reserve(t, warm, throttle.Job{ID: "warm", Weight: 1})
		warm.AwaitPublished() // it leaves the connection to the request
		th := newThrottle(t, client, scopes, &throttle.Options{Timeout: 100 * time.Millisecond, BreakAfter: -1})

		proxy.Stall()
		job, began := throttle.Job{ID: "stalled", Weight: 4}, time.Now()
		_, err := th.Reserve(t.Context(), job)
		u := unavailable(t, "stalled", err, "timeout")
		if took := time.Since(began); longtest.Full() && took > soon || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled: got %v after %s, want a timeout after 100 ms", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := th.Peek(ctx, throttle.Job{ID: "other", Weight: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stalled, with a context's deadline: got %v, want %v", err, context.DeadlineExceeded)
		}
		proxy.Unstall()
		redistest.Await(t, "the stalled request arrives", func() bool {
			got, _ := used(t, direct, th.Name(), scopes)
			return got == 4
		})

		job.Nonce = u.Nonce
		redistest.Await(t, "an answer to who asks again", func() bool {
			got, err := th.Reserve(t.Context(), job)
			return err == nil && got.Outcome == throttle.Granted
		})
		if got, _ := used(t, direct, th.Name(), scopes); got != 4 {
			t.Errorf("asked again: %d units used, want 4", got)
		}
	})
}
