package lua_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/calendar"
	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func drawLimits(t *rapid.T, name string) []line.Limit {
	windows := []int64{second, 7 * second, 60 * second, 3600 * second}
	var limits []line.Limit
	if rapid.SampledFrom([]bool{true, false, false}).Draw(t, "running") {
		lease := rapid.SampledFrom([]int64{second, 7 * second, 30 * second}).Draw(t, "lease")
		limits = append(limits, line.Limit{
			Units: rapid.SampledFrom([]int64{1, 2, 3, 5, 10, -1}).Draw(t, "at once"), Span: line.Lease(lease),
			Precision: rapid.SampledFrom([]int64{1, lease / 1000, lease / 3}).Draw(t, "precision of the lease"),
		})
	}
	for _, w := range windows {
		if !rapid.SampledFrom([]bool{true, false, false}).Draw(t, name) {
			continue
		}
		units := rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 30, 101, 700, 5000, -1}).Draw(t, "units")
		l := line.Limit{Units: units, Span: line.Window(w)}
		l.Precision = rapid.SampledFrom([]int64{1, 1, w / 100, w / 20, w / 3, w}).Draw(t, "precision")
		limits = append(limits, l)
	}
	return append(drawHours(t), append(limits, drawQuotas(t)...)...)
}

// drawHours draws hours that open or close around the time in which the histories begin. All of them are open on some
// Wednesday.
func drawHours(t *rapid.T) (limits []line.Limit) {
	text := rapid.SampledFrom([]string{"", "", "", "", "Mon-Fri 09:00-17:00 @America/New_York",
		"Mon-Sun 22:00-06:00, except 2027-01-15 2027-01-16 @Asia/Kolkata", "Tue-Sun 00:02-00:05, Wed 00:00-24:00 @UTC",
		"Mon-Sun 00:00-00:01, Mon-Sun 00:03-24:00 @UTC",
		"Sat 10:00-12:00, Tue-Thu 00:00-24:00 @Australia/Lord_Howe"}).Draw(t, "hours")
	if text == "" {
		return nil
	}
	of, err := calendar.HoursOf(text)
	if err != nil {
		panic(err)
	}
	return []line.Limit{{Units: -1, Span: line.Open(of), Precision: 1}}
}

// drawQuotas draws quotas of periods in which the histories begin, or end.
func drawQuotas(t *rapid.T) (limits []line.Limit) {
	texts := rapid.SampledFrom([][]string{nil, nil, {"day@America/New_York"}, {"day+9h@Asia/Kolkata"}, {"week@UTC"},
		{"day@UTC", "month+19d+1h@Europe/Paris"}, {"day+1h@Europe/Paris", "day@Australia/Lord_Howe"}}).Draw(t, "quotas")
	for _, text := range texts {
		limit := quotaOf(text, rapid.SampledFrom([]int64{1, 3, 10, 30, 700, 5000, -1}).Draw(t, "units"))
		if rapid.IntRange(0, 2).Draw(t, "ramp") == 0 {
			limit = drawRamp(t, limit)
		}
		limits = append(limits, limit)
	}
	slices.SortFunc(limits, func(a, b line.Limit) int { return a.Compare(b.Span) })
	return limits
}

// drawRamp gives a quota steps that begin before or after the histories do.
func drawRamp(t *rapid.T, limit line.Limit) line.Limit {
	of, err := calendar.Of(limit.Calendar)
	if err != nil {
		panic(err)
	}
	begins := of.Period(time.UnixMicro(newMachine(nil).now))
	steps := calendar.Steps{
		Units: rapid.SampledFrom([][]int64{{1}, {1, 2, 3}, {3, 30, 300, 5000}, {1, 10, 11, 100, 101, 5000}}).Draw(t, "steps"),
		First: begins + rapid.Int64Range(-3, 3).Draw(t, "first"),
		Every: rapid.SampledFrom([]int64{1, 1, 2, 5}).Draw(t, "every"),
	}
	if rapid.IntRange(0, 3).Draw(t, "is held") == 0 {
		steps.Held = begins + rapid.Int64Range(-2, 9).Draw(t, "held")
	}
	limit.Units, limit.Ramp = steps.Last(), line.RampText(steps)
	return limit
}

func quotaOf(text string, units int64) line.Limit {
	of, err := calendar.Of(text)
	if err != nil {
		panic(err)
	}
	span := line.Periods(of)
	return line.Limit{Units: units, Span: span, Precision: 1}
}

// drawRaised draws limits of the given units over two windows, with fine precisions.
func drawRaised(t *rapid.T, units int64) (limits []line.Limit) {
	for _, w := range []int64{7*second + 1, 60 * second} {
		precision := rapid.SampledFrom([]int64{1, 1, 7, w / 300, w / 100}).Draw(t, "precision")
		limits = append(limits, line.Limit{Units: units, Span: line.Window(w), Precision: precision})
	}
	return limits
}

func drawLasts(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 0, 1, second / 5, second, 7 * second, 90 * second}).Draw(t, "lasts")
}
