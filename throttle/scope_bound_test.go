package throttle_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestBoundOutOfRangeIsRefused: a bound is not negative, and counts no further than units do.
func TestBoundOutOfRangeIsRefused(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	const most = 1 << 53
	for bound, fine := range map[throttle.Length]bool{
		{}: true, {Jobs: 1}: true, {Units: most}: true, {Jobs: -1}: false, {Units: -1}: false, {Jobs: most + 1}: false,
		{Units: most + 1}: false,
	} {
		_, err := throttle.New("bound", client, []throttle.Scope{{Name: throttle.Global, MaxWaiting: bound}}, nil)
		var option *throttle.OptionError
		if (err == nil) != fine || !fine && (!errors.As(err, &option) || option.Field != "Scope.MaxWaiting") {
			t.Errorf("%+v: %v, want it taken: %t", bound, err, fine)
		}
	}
}

// TestLengthText: a length names its jobs and its units, one of them in the singular.
func TestLengthText(t *testing.T) {
	t.Parallel()
	for want, length := range map[string]throttle.Length{
		"0 jobs": {}, "1 job": {Jobs: 1}, "2 jobs": {Jobs: 2}, "1 unit": {Units: 1}, "2 units": {Units: 2},
		"1 job, 3 units": {Jobs: 1, Units: 3}, "3 jobs, 1 unit": {Jobs: 3, Units: 1},
	} {
		if got := length.String(); got != want {
			t.Errorf("%+v: %q, want %q", length, got, want)
		}
	}
}

// TestBoundsOfProcesses: each process refuses by its own bound, counts what the other enqueued, and differs from it.
func TestBoundsOfProcesses(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	of := func(most int64) *throttle.Throttle {
		scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerMinute(1)},
			MaxWaiting: throttle.Length{Jobs: most}}}
		th, err := throttle.New("bounds", client, scopes, &throttle.Options{Timeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		return th
	}
	low, high := of(1), of(2)
	rows := []struct {
		th    *throttle.Throttle
		id    string
		taken bool
	}{{low, "a", true}, {low, "b", false}, {high, "b", true}, {high, "c", false}, {low, "c", false}, {low, "b", true}}
	for i, row := range rows {
		_, err := row.th.Reserve(t.Context(), throttle.Job{ID: row.id, Weight: 1, Plan: true, Bounded: true})
		var full *throttle.LineFullError
		if (err == nil) != row.taken || !row.taken && (!errors.As(err, &full) || full.Wait < 0 || full.Wait > time.Hour) {
			t.Errorf("row %d, %s: %v, want it taken: %t", i, row.id, err, row.taken)
		}
	}
	mine, others := throttle.Process{Scopes: []throttle.Scope{{Name: "tenant", MaxWaiting: throttle.Length{Jobs: 1}}}},
		throttle.Process{Scopes: []throttle.Scope{{Name: "tenant", MaxWaiting: throttle.Length{Jobs: 2, Units: 9}}}}
	want := []string{"scope tenant without limits (its line has at most 1 job), " +
		"not without limits (its line has at most 2 jobs, 9 units)"}
	if got := mine.Differences(others); !slices.Equal(got, want) {
		t.Errorf("differences %q, want %q", got, want)
	}
}
