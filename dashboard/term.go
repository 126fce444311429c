package dashboard

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
)

// term is how long a setting lasts. The zero value has no end.
type term struct {
	end     time.Time // on this machine's clock, which inspect.Until reads
	words   string    // the end of a sentence, such as " for 4h"
	entered string    // as a later form enters the same term
}

var errEndless = errors.New("a pause has an end: enter for how long, or until when")

// termOf reads the field of a form that says for how long or until when a setting lasts.
func termOf(f form, field string) (term, error) {
	text, now := f.Get(field), f.now
	if text == "" {
		return term{}, nil
	}
	if span, is := view.ParseSpan(text); is {
		return term{time.Now().Add(span), " for " + text, text}, nil
	}
	end, is := view.ParseInstant(text, now)
	switch {
	case !is:
		return term{}, fmt.Errorf("%q is neither for how long, such as 30m, 4h or 1d, up to 400 days, nor until when, "+
			"such as 18:00 or 2026-11-22 18:00", text)
	case !end.After(now):
		return term{}, fmt.Errorf("%s is past", text)
	}
	// Tomorrow 18:00 would be another instant.
	return term{time.Now().Add(end.Sub(now)), " until " + end.In(now.Location()).Format("2006-01-02 15:04 MST"),
		end.Format(time.RFC3339Nano)}, nil
}
