package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// form is what a reader has entered, and when.
type form struct {
	url.Values
	now time.Time // on Redis' clock, in the reader's zone; UTC if the form names none
}

// formOf returns a form with the time at which it came.
func (h *Handler) formOf(ctx context.Context, entered url.Values) (form, error) {
	now, err := h.client.Time(ctx).Result()
	if err != nil {
		return form{}, fmt.Errorf("the time of Redis cannot be read: %w", err)
	}
	zone, err := time.LoadLocation(entered.Get("zone"))
	if err != nil {
		zone = time.UTC
	}
	return form{entered, now.In(zone)}, nil
}
