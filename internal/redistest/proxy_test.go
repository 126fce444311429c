package redistest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// onEach runs the test behind a proxy in front of a real Redis and of miniredis.
func onEach(t *testing.T, test func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client)) {
	t.Helper()
	for name, start := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Start(t).Addr },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			test(t, redistest.NewProxy(t, addr), client(t, addr))
		})
	}
}

// client returns a client that neither retries nor waits long for a connection.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const incrScript = "return redis.call('INCR', KEYS[1])"

func TestProxyPassesEverything(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		ctx := t.Context()
		big := strings.Repeat("x\r\n", 100_000)
		pipe := c.Pipeline()
		pipe.Set(ctx, "big", big, 0)
		pipe.HSet(ctx, "hash", "field", "value")
		got, hash, none := pipe.Get(ctx, "big"), pipe.HGetAll(ctx, "hash"), pipe.LRange(ctx, "none", 0, -1)
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatalf("pipeline: %v", err)
		}
		if got.Val() != big {
			t.Errorf("value of %d bytes: got %d bytes", len(big), len(got.Val()))
		}
		if hash.Val()["field"] != "value" || len(none.Val()) != 0 {
			t.Errorf("got hash %v, list %v; want field:value and nothing", hash.Val(), none.Val())
		}
		if err := c.Get(ctx, "missing").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("missing key: got %v, want redis.Nil", err)
		}
	})
}

func TestProxyDropsTheReplyOfAnExecutedCommand(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		ctx := t.Context()
		script := redis.NewScript(incrScript)
		if err := script.Load(ctx, c).Err(); err != nil {
			t.Fatalf("SCRIPT LOAD: %v", err)
		}
		proxy.DropNextReply("EvalSha")
		if err := c.Ping(ctx).Err(); err != nil {
			t.Errorf("PING, whose reply must arrive: %v", err)
		}
		if got, err := script.EvalSha(ctx, c, []string{"n"}).Int(); err == nil {
			t.Errorf("the reply %d was not lost", got)
		}
		if got := proxy.Dropped(); got != 1 {
			t.Errorf("dropped: got %d, want 1", got)
		}
		if got, err := direct.Get(ctx, "n").Int(); err != nil || got != 1 {
			t.Errorf("after the lost reply the server has n = %d, %v; want 1", got, err)
		}
		if got, err := script.EvalSha(ctx, c, []string{"n"}).Int(); err != nil || got != 2 {
			t.Errorf("the call after: got %d, %v; want 2", got, err)
		}
	})
}

// go-redis sends a command again when its reply is lost. That is why every decision
// carries a nonce.
func TestProxyShowsThatTheClientRepeatsByItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := redis.NewClient(&redis.Options{Addr: proxy.Addr})
		t.Cleanup(func() { _ = c.Close() })
		proxy.DropNextReply("incrby")
		if got, err := c.IncrBy(t.Context(), "n", 10).Result(); err != nil || got != 20 {
			t.Errorf("one INCRBY 10: got %d, %v; want 20, counted twice", got, err)
		}
	})
}

func TestProxyDropsTheNthReply(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		proxy.DropReply("incr", 3)
		proxy.DropReply("incr", 5)
		for call := 1; call <= 6; call++ {
			got, err := c.Incr(t.Context(), "n").Result()
			if lost := call == 3 || call == 5; lost != (err != nil) {
				t.Errorf("call %d: got %d, %v; want a lost reply: %t", call, got, err, lost)
			}
		}
		if got, err := direct.Get(t.Context(), "n").Int(); err != nil || got != 6 {
			t.Errorf("executed: got %d, %v; want all 6", got, err)
		}
	})
}

// If a reply in the middle of a pipeline is lost, so are the replies after it. Those
// before it arrive.
func TestProxyDropsInsideAPipeline(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		proxy.DropNextReply("lost")
		conn, err := net.Dial("tcp", proxy.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("*2\r\n$4\r\nINCR\r\n$4\r\nkept\r\n" +
			"*2\r\n$4\r\nINCR\r\n$4\r\nlost\r\n" + "*2\r\n$4\r\nINCR\r\n$4\r\nlast\r\n")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != ":1\r\n" {
			t.Errorf("got %q, %v; want the first reply only", got, err)
		}
		if got, err := direct.Get(t.Context(), "lost").Int(); err != nil || got != 1 {
			t.Errorf("executed: got %d, %v; want 1", got, err)
		}
	})
}

func TestProxyStalls(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("PING: %v", err)
		}
		proxy.Stall()
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if got, err := c.Incr(short, "n").Result(); err == nil {
			t.Errorf("answered %d while stalled", got)
		}
		if got, err := direct.Exists(t.Context(), "n").Result(); err != nil || got != 0 {
			t.Errorf("while stalled, n exists on the server: %d, %v; want 0", got, err)
		}
		proxy.Unstall()
		for { // the request arrives late, though its client gave up
			got, err := direct.Get(t.Context(), "n").Int()
			if err == nil && got == 1 {
				break
			}
			if !errors.Is(err, redis.Nil) {
				t.Fatalf("after the stall: n = %d, %v; want 1", got, err)
			}
		}
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("PING after the stall: %v", err)
		}
	})
}

func TestProxyMutes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		ctx := t.Context()
		conn, err := net.Dial("tcp", proxy.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		say := func(request string) (string, error) {
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			reply := make([]byte, 100)
			n, err := conn.Read(reply)
			return string(reply[:n]), err
		}
		proxy.Mute("")
		var timeout net.Error
		if reply, err := say("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("muted: got %q, %v; want nothing, on an open connection", reply, err)
		}
		redistest.Await(t, "the loss of the reply", func() bool { return proxy.Dropped() == 1 })
		proxy.Unmute()
		if reply, err := say("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("the connection that lost a reply: got %q, %v; want nothing", reply, err)
		}
		redistest.Await(t, "the execution of both requests", func() bool {
			got, err := direct.Get(ctx, "n").Int()
			return err == nil && got == 2
		})
		if got, err := client(t, proxy.Addr).Incr(ctx, "n").Result(); err != nil || got != 3 {
			t.Errorf("a new connection: got %d, %v; want 3", got, err)
		}
	})
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("PING: %v", err)
		}
		const delay = 30 * time.Millisecond
		proxy.Delay(delay)
		before := time.Now()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("PING: %v", err)
		}
		if took := time.Since(before); took < delay {
			t.Errorf("took %s, want at least %s", took, delay)
		}
	})
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		c := client(t, proxy.Addr)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("PING: %v", err)
		}
		proxy.Refuse()
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Error("answered on a connection that Refuse cuts")
		}
		if conn, err := net.Dial("tcp", proxy.Addr); err == nil {
			_ = conn.Close()
			t.Error("took a connection while refusing")
		}
		proxy.Accept()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("PING after Accept: %v", err)
		}
	})
}

// On a connection that subscribes, a request has no single reply. The proxy then passes
// everything on, and loses nothing.
func TestProxyPassesSubscriptions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, proxy *redistest.Proxy, direct *redis.Client) {
		ctx := t.Context()
		proxy.DropReply("subscribe", 1)
		sub := client(t, proxy.Addr).Subscribe(ctx, "a", "b")
		t.Cleanup(func() { _ = sub.Close() })
		for _, want := range []string{"a", "b"} {
			got, err := sub.Receive(ctx)
			if s, ok := got.(*redis.Subscription); err != nil || !ok || s.Channel != want {
				t.Fatalf("got %v, %v; want the subscription of %s", got, err, want)
			}
		}
		if err := direct.Publish(ctx, "b", "hello").Err(); err != nil {
			t.Fatalf("PUBLISH: %v", err)
		}
		if got, err := sub.ReceiveMessage(ctx); err != nil || got.Payload != "hello" {
			t.Errorf("got %v, %v; want hello", got, err)
		}
	})
}
