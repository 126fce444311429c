package lua

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// wrap composes a script of the test's own around one of the includes.
func wrap(t *testing.T, script string) string {
	t.Helper()
	all := make(fstest.MapFS)
	if err := fs.WalkDir(files, "include", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		all[path] = &fstest.MapFile{Data: text}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	all["verb.lua"] = &fstest.MapFile{Data: []byte(script)}
	text, err := compose(all, "verb")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func onBoth(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
}

// TestF45_IncludeInteger: only the canonical text of an integer in the range is one.
func TestF45_IncludeInteger(t *testing.T) {
	t.Parallel()
	script := wrap(t, "-- include: integer\nreturn string.format('%s', integer(ARGV[1], -5, 9007199254740992) or 'none')")
	onBoth(t, func(t *testing.T, client *redis.Client) {
		for _, text := range []string{"0", "1", "-5", "12", "1763683200123456", "9007199254740991", "9007199254740992"} {
			// %s of a large number has an exponent on a real Redis, so ask whether it is none.
			if got, err := client.Eval(t.Context(), script, nil, text).Text(); err != nil || got == "none" {
				t.Errorf("%q: got %s, %v; want the integer", text, got, err)
			}
		}
		for _, text := range []string{
			"", " ", "nan", "-nan", "inf", "-inf", "1e3", "1e400", "0x10", " 12 ", "12 ", "1.5", "1.0", "-0", "+1", "007", "-6",
			"9007199254740993", "9007199254740994", "99999999999999999999", strings.Repeat("9", 400), "1\x00", "a", "１",
		} {
			if got, err := client.Eval(t.Context(), script, nil, text).Text(); err != nil || got != "none" {
				t.Errorf("%q: got %s, %v; want none", text, got, err)
			}
		}
	})
}

// TestIncludeClock: Redis' own time to the microsecond, or the time that is told.
func TestIncludeClock(t *testing.T) {
	t.Parallel()
	script := wrap(t, "-- include: clock\nreturn { clock(''), clock('1763683200123456'), clock('x') or -1 }")
	onBoth(t, func(t *testing.T, client *redis.Client) {
		before, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Eval(t.Context(), script, nil).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		after, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got[0] < before.UnixMicro() || got[0] > after.UnixMicro() || got[1] != 1_763_683_200_123_456 || got[2] != -1 {
			t.Errorf("got %v, want the time between %d and %d, the time that was told, and -1", got, before.UnixMicro(), after.UnixMicro())
		}
	})
}

// TestIncludeSlide: the earliest start by hand, with what is booked and without.
func TestIncludeSlide(t *testing.T) {
	t.Parallel()
	script := wrap(t, `-- include: slide
local ledger = {
  precision = tonumber(ARGV[1]), span = tonumber(ARGV[2]), count = 4,
  at = { 0, 10, 20, 60 }, amount = { 5, 3, 2, 4 }, promised = { false, false, false, true },
}
return { slide(ledger, tonumber(ARGV[3]), tonumber(ARGV[4]), false), slide(ledger, tonumber(ARGV[3]), tonumber(ARGV[4]), true) }`)
	onBoth(t, func(t *testing.T, client *redis.Client) {
		for _, c := range []struct {
			precision, span, room, from int
			want, spentOnly             int64
		}{
			{1, 50, 10, 25, 25, 25}, // all 10 of the last 50 leave room for as much as is there
			{1, 50, 9, 25, 50, 50},  // the 5 have to leave
			{1, 50, 6, 25, 50, 50},  // the window that ends at 60 holds 2 + 4
			{1, 50, 5, 25, 70, 50},  // which is one too many with the booked, until the 2 have left
			{1, 50, 3, 25, 110, 60}, // alone with at most 3: after the booked have left; or when the first two have
			{1, 50, 0, 25, 110, 70},
			{1, 50, 0, 200, 200, 200}, // all has left
			{10, 50, 9, 27, 50, 50},
			{10, 50, 10, 27, 27, 27}, // within its sub-window it stays where it is
		} {
			got, err := client.Eval(t.Context(), script, nil, c.precision, c.span, c.room, c.from).Int64Slice()
			if err != nil || got[0] != c.want || got[1] != c.spentOnly {
				t.Errorf("%+v: got %v, %v", c, got, err)
			}
		}
	})
}
