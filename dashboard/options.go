package dashboard

import (
	"net/http"
	"net/url"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// Options are the settings of a Handler that have a default. The zero value and nil both have all
// defaults. Many goroutines call the functions and clients of Options.
type Options struct {
	// AllowChanges lets users change the pauses and limits of scope keys on the pages. False is
	// read-only: the pages have no buttons, and the handler refuses changes.
	AllowChanges bool
	// Authorize is called with the request of each page and each change; a change is a POST. If it
	// returns an error, the handler refuses the request, and logs the error without showing it. For
	// an open page, Authorize is called again only when the page is loaded. nil authorizes every
	// request.
	Authorize func(*http.Request) error
	// Who returns the name of the client that sent a request, in at most 100 bytes: for the log, as
	// the author of what the client changes (inspect.By), and to bound what one client may ask for
	// at the same time. With nil, the name is the user of HTTP's basic authentication or, without
	// one, the address; the bound is for each address, since nobody has verified that user. Set Who
	// behind a proxy, where all requests come from one address.
	Who func(*http.Request) string
	// Logger receives each change, with its client and scope key, at info, and each refused request
	// at warn. nil logs nothing.
	Logger *zap.Logger
	// Stats returns the counts of this process' shaper, such as Shaper.Stats; the pages show how
	// many tasks the shaper puts back. nil shows no counts.
	Stats func() worker.Stats
	// Asynq is the client of asynq's Redis, to find a task by its ID. With nil, it is the
	// throttle's client.
	Asynq redis.UniversalClient
	// Asynqmon is the URL of asynqmon, such as http://127.0.0.1:8080, for links to a task's page.
	// If it is empty, the pages have no links.
	Asynqmon string

	named bool // the caller has set Who
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

// asker returns the name of a request's client for the log.
func asker(r *http.Request) string {
	if user, _, is := r.BasicAuth(); is && user != "" {
		return user
	}
	return r.RemoteAddr
}
