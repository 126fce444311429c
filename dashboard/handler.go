package dashboard

import (
	"bytes"
	"embed"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Handler serves the pages about one throttle. It is safe for use by many goroutines, and
// has none of its own: all it does is done by requests.
type Handler struct {
	options Options
	client  redis.UniversalClient
	hub     *hub
	origin  *http.CrossOriginProtection
	lookers atomic.Int64 // browsers that are kept up to date

	searching sync.Mutex // held while all that waits, or all keys, are looked through
	closed    chan struct{}
	close     func()
}

// New returns the pages about the throttle of this name, whose keys client reaches. It does
// not talk to Redis: the pages say so where nothing is published, or Redis does not answer.
// The error is a *throttle.OptionError.
func New(name string, client redis.UniversalClient, opts *Options) (*Handler, error) {
	if client == nil {
		return nil, &throttle.OptionError{Field: "client", Value: nil, Reason: "is nil"}
	}
	var options Options
	if opts != nil {
		options = *opts
	}
	if err := options.validate(client); err != nil {
		return nil, err
	}
	r := &reader{name: name, client: client, stats: options.Stats}
	h := &Handler{options: options, client: client, hub: newHub(name, r.look), origin: http.NewCrossOriginProtection(), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h, nil
}

// Close ends the connections that keep browsers up to date, which http.Server.Shutdown
// would wait for: pass it to http.Server.RegisterOnShutdown. Pages are served after it as
// before, but they stay as they are.
func (h *Handler) Close() { h.close() }

//go:embed assets
var assets embed.FS

// assetTypes are the files that pages ask for.
var assetTypes = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"live.js":   "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// policy lets a page load nothing but what this handler serves.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves a page by the last element of the path, so that any prefix does.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	page := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	kind, isAsset := assetTypes[page]
	switch {
	case r.Method == http.MethodPost && page == "key":
		h.change(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case isAsset:
		h.asset(w, r, page, kind)
	case page == "events" && r.Method == http.MethodGet:
		h.events(w, r)
	case pages[page] != nil:
		h.page(w, r, page)
	default:
		http.NotFound(w, r)
	}
}

func (h *Handler) asset(w http.ResponseWriter, r *http.Request, name, kind string) {
	file, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "max-age=300")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(file))
}
