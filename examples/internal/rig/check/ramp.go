package check

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// steps returns the quotas that a ramp consists of, one after the other. The first has no units: it applies before the
// ramp begins.
func steps(ramp throttle.Limit) []throttle.Limit {
	listed, _, _ := strings.Cut(ramp.Ramp, "/")
	quotas := []throttle.Limit{quotaOf(ramp, 0)}
	for units := range strings.FieldsSeq(listed) {
		quotas = append(quotas, quotaOf(ramp, numberOf(units)))
	}
	return quotas
}

// stepAt returns the quota of a ramp in the period of an instant. It counts the periods between the date on which the
// first step begins and the date of that period. It reads the text of the throttle.Limit.
func stepAt(ramp throttle.Limit, at time.Time) throttle.Limit {
	zone := zoneOf(ramp.Calendar.Zone)
	begins, _ := began(ramp.Calendar, zone, at)
	date := dateOf(begins, zone)
	listed, rest, _ := strings.Cut(ramp.Ramp, "/")
	from, every := time.Time{}, int64(1)
	words := strings.Fields(rest)
	for i, word := range words {
		switch word {
		case "from":
			from = dayOf(words[i+1])
		case "every":
			every = numberOf(strings.TrimRight(words[i+1], "dwmo"))
		case "held":
			if held := dayOf(words[i+1]); held.Before(date) {
				date = held
			}
		}
	}
	if date.Before(from) {
		return quotaOf(ramp, 0)
	}
	units := strings.Fields(listed)
	step := min(periodsBetween(ramp.Calendar.Unit, from, date)/every, int64(len(units)-1))
	return quotaOf(ramp, numberOf(units[step]))
}

// stepsIn returns limits in which steps stand for each ramp, without repetition.
func stepsIn(limits []throttle.Limit, of func(ramp throttle.Limit) []throttle.Limit) []throttle.Limit {
	var all []throttle.Limit
	for _, limit := range limits {
		one := []throttle.Limit{limit}
		if limit.Ramp != "" {
			one = of(limit)
		}
		for _, limit := range one {
			if !slices.Contains(all, limit) {
				all = append(all, limit)
			}
		}
	}
	return all
}

// quotaOf returns a quota of the given units in the periods of a ramp.
func quotaOf(ramp throttle.Limit, units int64) throttle.Limit {
	return throttle.Limit{Units: units, Calendar: ramp.Calendar}
}

// periodsBetween returns how many days, weeks or months later the period of the second date began.
func periodsBetween(unit string, from, until time.Time) int64 {
	days := int64(until.Sub(from) / (24 * time.Hour))
	switch unit {
	case throttle.Week:
		return days / 7
	case throttle.Month:
		return int64(12*(until.Year()-from.Year()) + int(until.Month()-from.Month()))
	}
	return days
}

func dayOf(date string) time.Time {
	day, _ := time.Parse(time.DateOnly, date) // the throttle has read it before
	return day
}

func numberOf(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // the throttle has read it before
	return n
}
