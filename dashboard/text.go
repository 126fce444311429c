package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// functions are the functions that templates call.
var functions = template.FuncMap{
	"name":     name,
	"linked":   func(key string) bool { return !strings.HasPrefix(key, "~") },
	"far":      view.Far,
	"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"clock":    view.Clock,
	"when":     func(at, now time.Time) instant { return instant{at, now} },
	"span":     view.Span,
	"short":    func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() },
	"percent":  view.Percent,
	"part":     view.ShareText,
	"plural":   view.Plural[int64],
	"sentence": func(text string) string { return view.Printable(view.Capital(text)) },
	"limits":   view.LimitTexts,
	"leased":   view.Leased,

	"delaysNothing": view.DelaysNothing,
}

// name returns a name as a page shows it. Spaces at its ends, which are invisible, are escaped too.
func name(text string) string {
	const space = `\x20`
	inner := strings.TrimLeft(text, " ")
	before := len(text) - len(inner)
	inner = strings.TrimRight(inner, " ")
	return strings.Repeat(space, before) + view.Printable(inner) + strings.Repeat(space, len(text)-before-len(inner))
}

// instant is a time, and the time from which its distance is shown; both by Redis' clock.
type instant struct{ At, Now time.Time }

// limitsInForce returns the limits of a scope key in the form in which a user can set them.
func limitsInForce(u inspect.Usage) string {
	limits := make([]throttle.Limit, len(u.Limits))
	for i, l := range u.Limits {
		limits[i] = l.Limit
	}
	return view.LimitTexts(limits)
}

// perSecond formats a rate for people.
func perSecond(rate float64) string {
	if rate >= 10 || rate == 0 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// problem returns one line about an error.
func problem(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("This takes longer than %s to read: Redis is slow, or very many jobs wait.", patience)
	}
	text := strings.TrimPrefix(err.Error(), "throttle: ")
	return view.Printable(strings.Join(strings.Fields(text), " ")) + "."
}
