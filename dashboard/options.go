package dashboard

import (
	"net/http"
	"net/url"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Options are the settings of a Handler that have a default. The zero value and nil both
// have all of them. What they name is called by many goroutines.
type Options struct {
	// AllowChanges lets pauses and limits of scope keys be changed from the pages. False is
	// read-only: there are no buttons, and a change is refused.
	AllowChanges bool
	// Authorize is asked before each page and each change, with its request; a change is a
	// POST. An error refuses it; it is logged and not shown. A page that is open is asked for
	// again only when it is loaded. nil refuses nobody who reaches the pages.
	Authorize func(*http.Request) error
	// Who returns the name of the client that sent a request, for the log and to bound what one
	// client may ask for at the same time. With nil, the log has the user of HTTP's basic
	// authentication or, without one, the address; the bound is for each address, since nobody
	// has verified that user. Set Who behind a proxy, where all requests come from one address.
	Who func(*http.Request) string
	// Logger takes each change, with who asked for it and the scope key, at info, and each
	// request that was refused at warn. nil is silent.
	Logger *zap.Logger
	// Stats are the counts of this process' shaper, Shaper.Stats, to show how many tasks it
	// puts back. nil shows none.
	Stats func() worker.Stats
	// Asynq is the client of asynq's Redis, to find a task by its ID. nil is the throttle's.
	Asynq redis.UniversalClient
	// Asynqmon is the URL of asynqmon, such as http://127.0.0.1:8080, for links to a task's
	// page there. Empty shows none.
	Asynqmon string

	named bool // by the caller's Who
}

// validate checks the options and fills in what has a default.
func (o *Options) validate(client redis.UniversalClient) error {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Asynq == nil {
		o.Asynq = client
	}
	o.named = o.Who != nil
	if !o.named {
		o.Who = asker
	}
	if o.Asynqmon != "" {
		u, err := url.Parse(o.Asynqmon)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return &throttle.OptionError{Field: "Asynqmon", Value: o.Asynqmon, Reason: "is no URL such as http://127.0.0.1:8080"}
		}
	}
	return nil
}

// asker names who asks.
func asker(r *http.Request) string {
	if user, _, is := r.BasicAuth(); is && user != "" {
		return user
	}
	return r.RemoteAddr
}
