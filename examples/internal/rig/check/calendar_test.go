package check

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wallclock"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// instants draws instants from some years, half of them near a change of a zone's clock.
func instants(random *rand.Rand, zone string) []time.Time {
	var all []time.Time
	for range 40 {
		at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(random.Int64N(int64(3 * 365 * 24 * time.Hour))))
		all = append(all, at)
		if _, change := at.In(zoneOf(zone)).ZoneBounds(); !change.IsZero() {
			all = append(all, change.Add(time.Duration(random.Int64N(int64(6*time.Hour)))-3*time.Hour).Truncate(time.Second))
		}
	}
	return all
}

var zones = []string{"UTC", "Europe/Paris", "America/Havana", "Australia/Lord_Howe", "America/St_Johns", "Africa/Cairo"}

func TestPeriodsAgreeWithTheClock(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, zone := range zones {
		for _, at := range instants(random, zone) {
			of := throttle.Calendar{Unit: throttle.Day, Hours: random.IntN(24), Zone: zone}
			switch random.IntN(3) {
			case 0:
				of.Unit, of.Days = throttle.Week, random.IntN(7)
			case 1:
				of.Unit, of.Days = throttle.Month, random.IntN(31)
			}
			got, number := began(of, zoneOf(zone), at)
			if want := wallclock.Began(of.Unit, of.Days, of.Hours, zoneOf(zone), at); !got.Equal(want) {
				t.Errorf("%s at %s: began %s, want %s", of, at, got.UTC(), want.UTC())
			}
			if next := beginning(of, zoneOf(zone), at, number+1); !next.After(at) {
				t.Errorf("%s at %s: the next began at %s", of, at, next.UTC())
			}
		}
	}
}

func TestOpeningsAgreeWithTheClock(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for _, zone := range zones {
		for _, week := range []string{
			"Mon-Fri 09:00-17:00", "Sat-Mon 01:30-02:30, Tue-Tue 12:00-13:00, Wed 22:00-03:00",
			"00:30-02:00, Sun 23:00-00:30",
			"Fri-Thu 20:00-06:00, except 2026-12-25 2025-03-30", "00:00-24:00, except 2026-10-25",
		} {
			limit, err := throttle.ParseLimit("open " + week + " @" + zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range instants(random, zone) {
				if got := isOpen(Openings(limit.Hours, at, at), at); got != wallclock.IsOpen(limit.Hours, at) {
					t.Errorf("%s at %s: open is %t", limit, at, got)
				}
			}
		}
	}
}

// paris returns an instant by the clock of Paris, in microseconds since 1970.
func paris(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04:05", text, zoneOf("Europe/Paris"))
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// A quota is added up by the days of its zone, and hours are looked at by its clock.
func TestCheckQuotaAndHours(t *testing.T) {
	t.Parallel()
	acme, globex := keys{"tenant": "acme"}, keys{"tenant": "globex"}
	events := []Event{
		{At: paris(t, "2026-03-02 09:00:00"), Units: 3, Of: acme}, {At: paris(t, "2026-03-02 16:59:59"), Units: 2, Of: acme},
		{At: paris(t, "2026-03-03 00:00:01"), Units: 1, Of: acme}, {At: paris(t, "2026-03-03 23:59:59"), Units: 6, Of: acme},
		{At: paris(t, "2026-03-03 12:00:00"), Units: 5, Of: globex},
	}
	scopes := []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.OpenHours("Mon-Fri 09:00-17:00 @Europe/Paris")}},
		{Name: "tenant", Limits: []throttle.Limit{throttle.PerCalendarDay(5, "Europe/Paris")}, Margin: time.Second},
	}
	for _, row := range []struct {
		shorter                time.Duration
		outside, fullest       int64
		countOutside, daysOver int
	}{
		{0, 7, 7, 2, 1},
		{2 * time.Second, 7, 6, 2, 1}, // the event just after midnight may belong to the day before
		{8 * time.Hour, 0, 6, 0, 1},
	} {
		uses := Limits(events, Law{Scopes: scopes}, row.shorter)
		hours, quota := uses[0], uses[1]
		if row.shorter < time.Hour && (hours.Worst != row.outside || hours.Over != row.countOutside) {
			t.Errorf("shorter by %s: %d units in %d events outside, want %d in %d", row.shorter, hours.Worst, hours.Over,
				row.outside, row.countOutside)
		}
		if quota.Worst != row.fullest || quota.Over != row.daysOver || quota.Key != "acme" ||
			quota.Period.UnixMicro() != paris(t, "2026-03-03 00:00:00") {
			t.Errorf("shorter by %s: %+v, want %d in the fullest of %d days over", row.shorter, quota, row.fullest,
				row.daysOver)
		}
	}
}

// The last of a quota's units start when it has begun anew often enough, and hours are open.
func TestOptimumOfQuotaAndHours(t *testing.T) {
	t.Parallel()
	quota := throttle.Scope{Name: "tenant", Limits: []throttle.Limit{throttle.PerCalendarDay(5, "Europe/Paris")}}
	window := throttle.Scope{Name: "tenant", Limits: []throttle.Limit{throttle.Per(10, 10*time.Minute)}}
	hours := throttle.Scope{Name: throttle.Global, Limits: []throttle.Limit{
		throttle.OpenHours("Mon-Fri 09:00-17:00, except 2026-03-30 @Europe/Paris")}}
	at := paris(t, "2026-03-27 16:00:00") // a Friday; on Sunday the clock changes
	for _, row := range []struct {
		units  int64
		scopes []throttle.Scope
		want   time.Duration
	}{
		{5, []throttle.Scope{quota, hours}, 0},
		{6, []throttle.Scope{quota}, 8 * time.Hour},
		{15, []throttle.Scope{quota}, 32 * time.Hour},
		{16, []throttle.Scope{quota}, 55 * time.Hour},
		{6, []throttle.Scope{quota, hours}, (8 + 24 + 23 + 24 + 9) * time.Hour},
		{60, []throttle.Scope{window}, 5 * 10 * time.Minute},
		{70, []throttle.Scope{window, hours}, time.Hour},
		{80, []throttle.Scope{window, hours}, (8 + 24 + 23 + 24 + 9) * time.Hour},
		{100, []throttle.Scope{window, hours}, (8+24+23+24+9)*time.Hour + 20*time.Minute},
	} {
		events := []Event{{At: at, Units: 1, Of: keys{}}, {At: at + 1, Units: row.units - 1, Of: keys{}}}
		if got := Optimum(events, Law{Scopes: row.scopes}); got != row.want {
			t.Errorf("%d units: got %s, want %s", row.units, got, row.want)
		}
	}
}
