package wallclock

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ofRamp are the parts of a ramp's text.
var ofRamp = regexp.MustCompile(`^([\d ]+)/(day|week|month)(?:\+(\d+)d)?(?:\+(\d+)h)?(?: every (\d+)\w+)?` +
	` from ([\d-]+)(?: held ([\d-]+))? @(\S+)$`)

// UnitsAt returns the units of a ramp at an instant, 0 before it begins. It counts the days, weeks or months between
// the date of its beginning and that on which the period of the instant began. The text is that of a throttle's ramp,
// which package calendar has checked.
func UnitsAt(ramp string, at time.Time) int64 {
	parts := ofRamp.FindStringSubmatch(ramp)
	unit, days, hours, from, held := parts[2], number(parts[3]), number(parts[4]), date(parts[6]), parts[7]
	zone, err := time.LoadLocation(parts[8])
	if err != nil {
		panic(err)
	}
	began := date(Began(unit, days, hours, zone, at).In(zone).Format(time.DateOnly))
	if held != "" && date(held).Before(began) {
		began = date(held)
	}
	if began.Before(from) {
		return 0
	}
	steps := strings.Fields(parts[1])
	step := between(unit, from, began) / max(1, number(parts[5]))
	return int64(number(steps[min(step, len(steps)-1)]))
}

// between returns how many periods later the one of the second date began.
func between(unit string, from, to time.Time) int {
	days := int(to.Sub(from) / (24 * time.Hour))
	switch unit {
	case "week":
		return days / 7
	case "month":
		return 12*(to.Year()-from.Year()) + int(to.Month()) - int(from.Month())
	}
	return days
}

func date(text string) time.Time {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return day
}

func number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
