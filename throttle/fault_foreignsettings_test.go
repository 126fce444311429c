package throttle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestForeignSettings: if control, or a scope key's own limits, has a text that is no mode or no
// limit, all calls that read it fail with ErrState, and never treat the scope as one without
// limits. They write nothing, and when the text is gone the throttle goes on.
func TestForeignSettings(t *testing.T) {
	t.Parallel()
	rows := map[string]struct{ key, text string }{
		"no text":                           {"control", ""},
		"other text":                        {"control", "foreign"},
		"a mode that is none":               {"control", "x;tenant=e:100/w10000000/1;"},
		"no mode":                           {"control", ";tenant=e:100/w10000000/1;"},
		"a mode without its end":            {"control", "e"},
		"something behind the mode":         {"control", "e;many"},
		"something behind the scopes":       {"control", "-;tenant=-:many;"},
		"a scope's mode that is none":       {"control", "-;tenant=x:-;"},
		"a scope without a mode":            {"control", "-;tenant=:-;"},
		"a scope without limits":            {"control", "-;tenant=e;"},
		"empty limits":                      {"control", "-;tenant=e:;"},
		"a scope without a name":            {"control", "-;=e:100/w10000000/1;"},
		"a limit that is cut off":           {"control", "-;tenant=e:100/10000000"},
		"a limit without a precision":       {"control", "-;tenant=e:100/10000000;"},
		"one limit of two is cut off":       {"control", "-;tenant=e:100/w10000000/1,200/6000;"},
		"a limit with something behind it":  {"control", "-;tenant=e:100/w10000000/1x;"},
		"units below -1":                    {"control", "-;tenant=e:-5/w10000000/1;"},
		"a window of 0":                     {"control", "-;tenant=e:100/0/1;"},
		"a precision of 0":                  {"control", "-;tenant=e:100/w10000000/0;"},
		"one scope of two":                  {"control", "-;global=e:100/w10000000/1;tenant=x:-;"},
		"a scope that nobody has":           {"control", "-;other=x:many;"},
		"a window with steps":               {"control", "-;tenant=-:5&9:1:1:0/w10000000/1|0|1|ann|why;"},
		"steps without a period":            {"control", "-;tenant=-:5&9/w10000000/1|0|1|ann|why;"},
		"own limits that are none":          {"key:tenant:a", "0 0 0 0 many\n"},
		"own limits without a precision":    {"key:tenant:a", "0 0 0 0 100/10000000\n"},
		"own limits of which one is none":   {"key:tenant:a", "0 0 0 0 100/w10000000/1,many\n"},
		"own limits that are empty":         {"key:tenant:a", "0 0 0 0 \n"},
		"own limits without a line's end":   {"key:tenant:a", "0 0 0 0 100/w10000000/1"},
		"own limits with something between": {"key:tenant:a", "0 0 0 0 100/w10000000/1;200/w60000000/1\n"},
		"own limits with a window of 0":     {"key:tenant:a", "0 0 0 0 100/0/1\n"},
		"own limits with a precision of 0":  {"key:tenant:a", "0 0 0 0 100/w10000000/0\n"},
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		for name, row := range rows {
			th := newThrottle(t, client, tenantAndGlobal(throttle.PerMinute(2), throttle.PerMinute(2)),
				&throttle.Options{Lookahead: time.Second})
			first := reserve(t, th, throttle.Job{ID: "first", Weight: 2, Keys: of("a")}) // all there is
			key := "thr:{" + th.Name() + "}:4:" + row.key
			before, err := client.Get(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Set(t.Context(), key, row.text, 0).Err(); err != nil {
				t.Fatal(err)
			}
			calls := map[string]func() error{
				"Reserve": func() error {
					_, err := th.Reserve(t.Context(), throttle.Job{ID: "next", Weight: 1, Keys: of("a")})
					return err
				},
				"Peek": func() error {
					_, err := th.Peek(t.Context(), throttle.Job{ID: "next", Weight: 1, Keys: of("a")})
					return err
				},
				"ReserveAll": func() error {
					return th.ReserveAll(t.Context(), []throttle.Job{{ID: "next", Weight: 1, Keys: of("a")},
						{ID: "one more", Weight: 1, Keys: of("a")}})[1].Err
				},
				"Settle": func() error { _, err := th.Settle(t.Context(), first, 1); return err },
				"Usage":  func() error { _, err := inspect.New(th).Usage(t.Context(), "tenant", "a"); return err },
				"Pause": func() error {
					_, err := inspect.New(th).Pause(t.Context(), "tenant", "a", time.Now().Add(time.Hour))
					return err
				},
				"SetLimits": func() error {
					return inspect.New(th).SetLimits(t.Context(), "tenant", "a", []throttle.Limit{throttle.PerMinute(9)})
				},
			}
			for call, ask := range calls {
				if err := ask(); !errors.Is(err, throttle.ErrState) {
					t.Errorf("%s, %q at %s: %s says %v, want ErrState", name, row.text, row.key, call, err)
				}
				if got := client.Get(t.Context(), key).Val(); got != row.text {
					t.Errorf("%s: %s has made %q of %q", name, call, strings.TrimSpace(got), row.text)
					client.Set(t.Context(), key, row.text, 0)
				}
			}
			client.Set(t.Context(), key, before, time.Hour)
			if got := reserve(t, th, throttle.Job{ID: "last", Weight: 1, Keys: of("a")}); got.Outcome != throttle.Waiting {
				t.Errorf("%s: afterwards a job is %s, want waiting: the limit is used up", name, got.Outcome)
			}
		}
	})
}
