package throttle_test

import (
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// passTime lets a server's keys grow older, as if time had passed: it shortens each key's
// expiry, and deletes keys whose time is over. It replies with the number of keys that have
// no expiry, which time does not take away.
const passTime = `
local cursor, left = ARGV[2], 0
for _ = 1, 20 do
  local page = redis.call('SCAN', cursor, 'COUNT', '1000')
  for _, key in ipairs(page[2]) do
    local lives = redis.call('PTTL', key)
    if lives < 0 then
      left = left + 1
    elseif lives <= tonumber(ARGV[1]) then
      redis.call('DEL', key)
    else
      redis.call('PEXPIRE', key, lives - ARGV[1])
    end
  end
  cursor = page[1]
  if cursor == '0' then
    break
  end
end
return { cursor, left }`

// grow makes all keys of a server older by a time.
func grow(t *testing.T, client *redis.Client, by time.Duration) (forever int64) {
	t.Helper()
	for cursor := "0"; ; {
		reply, err := client.Eval(t.Context(), passTime, nil, by.Milliseconds(), cursor).Slice()
		if err != nil {
			t.Fatal(err)
		}
		cursor, _ = reply[0].(string)
		left, _ := reply[1].(int64)
		forever += left
		if cursor == "0" {
			return forever
		}
	}
}

var usedMemory = regexp.MustCompile(`used_memory:(\d+)`)

// occupied returns how many keys a server has, and its memory in megabytes.
func occupied(t *testing.T, client *redis.Client) (keys, megabytes int64) {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := strconv.ParseInt(usedMemory.FindStringSubmatch(info)[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if keys, err = client.DBSize(t.Context()).Result(); err != nil {
		t.Fatal(err)
	}
	return keys, bytes >> 20
}

// TestF51_T2_ManyTenantsComeAndGo: a hundred thousand tenants with a job each leave
// nothing behind, neither keys nor memory, once a minute and a quarter has passed, but for
// the control key and the last answer: every key has an expiry, and no other a longer one. TENANTS=1000000 in
// the environment tries as many, in a minute or two.
func TestF51_T2_ManyTenantsComeAndGo(t *testing.T) {
	t.Parallel()
	tenants := longtest.Of(20_000, 100_000)
	if text := os.Getenv("TENANTS"); text != "" {
		var err error
		if tenants, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const batch, goroutines = 500, 4
	server := redistest.Start(t)
	client := server.Client(t)
	scopes := []throttle.Scope{{Name: "tenant", Limits: []throttle.Limit{throttle.Per(5, 100*time.Millisecond)}}}
	th := newThrottle(t, client, scopes, &throttle.Options{Grace: time.Millisecond, Lookahead: 100 * time.Millisecond})
	if _, err := inspect.New(th).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	beforeKeys, beforeMemory := occupied(t, client)

	began := time.Now()
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for first := g * batch; first < tenants; first += goroutines * batch {
				jobs := make([]throttle.Job, 0, batch)
				for i := first; i < min(first+batch, tenants); i++ {
					tenant := "tenant-" + strconv.Itoa(i)
					jobs = append(jobs, throttle.Job{ID: tenant, Weight: 1, Keys: of(tenant)})
				}
				for _, answer := range th.ReserveAll(t.Context(), jobs) {
					if answer.Err != nil {
						t.Errorf("tenant of batch %d: %v", first, answer.Err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	peakKeys, peakMemory := occupied(t, client)
	if peakKeys < int64(tenants)/10 {
		t.Errorf("%d keys at the peak of %d tenants: too few to have counted them", peakKeys, tenants)
	}
	forever := grow(t, client, 77*time.Second)
	afterKeys, afterMemory := occupied(t, client)
	t.Logf("%d tenants in %s: keys %d, %d, %d; MB %d, %d, %d (before, at the peak, after)",
		tenants, took.Round(time.Second), beforeKeys, peakKeys, afterKeys, beforeMemory, peakMemory, afterMemory)
	if forever > 0 || afterKeys > beforeKeys+3 || afterMemory > beforeMemory+10+peakMemory/20 {
		t.Errorf("%d keys without expiry; keys %d, were %d; MB %d, were %d", forever, afterKeys, beforeKeys,
			afterMemory, beforeMemory)
	}
	grow(t, client, 31*24*time.Hour)
	if keys, _ := occupied(t, client); keys > beforeKeys {
		t.Errorf("%d keys after a month, were %d", keys, beforeKeys)
	}
}
