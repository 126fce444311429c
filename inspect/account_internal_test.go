package inspect

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// inspectorOf inspects a throttle that has never asked its Redis.
func inspectorOf(t *testing.T) *Inspector {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	limits := []throttle.Limit{throttle.PerMinute(100)}
	th, err := throttle.New("t", client, []throttle.Scope{{Name: throttle.Global, Limits: limits},
		{Name: "tenant", Limits: limits}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(th)
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	th := inspectorOf(t)
	text := "9000 600 s k 5000 3 4000 7 8\n100/w60000000/1 5 6 7000 0 100\n-1/w86400000000/1 0 0 1000 0 -1\n" +
		"0/w90000000/1 0 0 0 0 0\n" + "3&5:739000:1:0/z86400000000day@UTC/1 1 0 1000 2000 3\n" +
		"# 12\n= w60000000 1 60000000 0 0000000000000010000000000000000100000000000000110000000000000003 " +
		"00000000000000100000000000000002\n= r5000000 500 10001 -7 - -"
	accounts, err := th.accounts([]any{"1000", text}, []string{"tenant:a%20b"})
	if err != nil {
		t.Fatal(err)
	}
	a, at := accounts[0], time.UnixMicro
	want := Usage{Scope: "tenant", Key: "a b", Now: at(1000), Mode: throttle.Shadow, Paused: at(9000), Served: 0.6,
		SetFor: "key", Ends: at(5000), Waiting: 3, Next: at(4000), Line: throttle.Length{Jobs: 7, Units: 8},
		Limits: []LimitUsage{
			{Limit: throttle.PerMinute(100), Units: 100, Used: 5, Booked: 6, Free: at(7000), Counts: time.Minute},
			{Limit: throttle.PerDay(throttle.Unlimited), Units: -1, Free: at(1000), Counts: 24 * time.Hour},
			{Limit: throttle.Per(0, 90*time.Second), Counts: 90 * time.Second},
			{Limit: throttle.Ramp("3 5/day from 2024-04-25 @UTC"), Units: 3, Used: 1, Free: at(1000), Anew: at(2000),
				Counts: 24 * time.Hour},
		}}
	if !reflect.DeepEqual(a.Usage, want) {
		t.Errorf("got %+v, want %+v", a.Usage, want)
	}
	ledgers := []line.LedgerSnapshot{
		{Span: line.Window(60_000_000), Precision: 1, N: 60_000_000,
			Spent: []line.Entry{{At: 10, Units: 1}, {At: 11, Units: 3}}, Booked: []line.Entry{{At: 10, Units: 2}}},
		{Span: line.Lease(5_000_000), Precision: 500, N: 10_001, Shift: -7},
	}
	if !reflect.DeepEqual(a.counts, []int64{12}) || !reflect.DeepEqual(a.ledgers, ledgers) {
		t.Errorf("counts %d, ledgers %v", a.counts, a.ledgers)
	}
	for _, text := range []string{"", "0 1001 e c 0 0 0", "0 -1 e c 0 0 0", "0 e c 0 0 0", "0 1000 e c 0 0",
		"0 1000 x c 0 0 0", "0 1000  c 0 0 0", "0 1000 es c 0 0 0", "0 1000 e x 0 0 0", "0 1000 e c 0 0 0 0",
		"0 1000 e c 0 0 0\n1/2", "0 1000 e c 0 0 0\n1/w2/3 1 2", "0 1000 e c 0 0 0\n1 2 3", "0 1000 e c 0 0 0\n= w1 2 3",
		"0 1000 e c 0 0 0\n= w1 1 1 0 - 1", "0 1000 e c 0 0 0\n= w1 1 1 0 - ", "0 1000 e c 0 0 0\n#"} {
		if _, err := th.accounts([]any{"1000", text}, []string{"global:"}); !errors.Is(err, throttle.ErrState) {
			t.Errorf("%q: got %v, want throttle.ErrState", text, err)
		}
	}
	if _, err := th.accounts([]any{"1000"}, []string{"global:"}); !errors.Is(err, throttle.ErrState) {
		t.Error("an answer for no scope key passes")
	}
}
