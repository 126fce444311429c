package account

import (
	"testing"
	"time"
)

// at is what happened to a job, in milliseconds after the beginning.
type at struct {
	job string
	ms  int
}

func (a at) named() (string, time.Time) {
	return a.job, time.UnixMilli(1_700_000_000_000).Add(time.Duration(a.ms) * time.Millisecond)
}

func TestSpread(t *testing.T) {
	t.Parallel()
	granted := []at{{"a", 100}, {"a", 0}, {"b", 50}, {"b", 2000}}
	for name, row := range map[string]struct {
		record []at
		pairs  int
		want   time.Duration
	}{
		"no record":                         {nil, 0, 0},
		"the latest grant before the entry": {[]at{{"a", 10}, {"b", 53}, {"a", 120}}, 3, 20 * time.Millisecond},
		"a job that was never granted":      {[]at{{"a", 10}, {"unknown", 9000}}, 1, 10 * time.Millisecond},
		"an entry before its grant":         {[]at{{"a", -5}, {"b", 53}}, 2, 8 * time.Millisecond},
		"only entries before their grants":  {[]at{{"a", -5}, {"b", 48}}, 2, 3 * time.Millisecond},
	} {
		pairs := Pairs(granted, row.record, at.named, at.named)
		if got := Spread(pairs); got != row.want || len(pairs) != row.pairs {
			t.Errorf("%s: got %s of %d pairs, want %s of %d", name, got, len(pairs), row.want, row.pairs)
		}
	}
}
