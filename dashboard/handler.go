package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Handler serves the pages about one throttle. It is safe for use by many goroutines. Requests do all its work: no
// goroutine of a Handler outlives the request that started it.
type Handler struct {
	options Options
	client  redis.UniversalClient
	hub     *hub
	origin  *http.CrossOriginProtection

	streams   clients // event streams of browsers
	requests  clients // other requests
	searching turn    // taken while a request scans all keys
	explained turn    // taken while a request explains a job
	closed    chan struct{}
	close     func()
}

// New returns the pages about the throttle of this name, whose keys client reaches. New does not
// call Redis: if no process has published the throttle, or Redis does not answer, the pages say so.
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
	h := &Handler{options: options, client: client, hub: newHub(name, r.read), origin: http.NewCrossOriginProtection(),
		searching: newTurn(), explained: newTurn(), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h, nil
}

// Close ends the event streams of browsers, for which http.Server.Shutdown would wait: pass Close
// to http.Server.RegisterOnShutdown. The handler still serves pages afterwards, but these no longer
// update themselves.
func (h *Handler) Close() { h.close() }

//go:embed assets
var assets embed.FS

// assetTypes has the content types of the files that pages load.
var assetTypes = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"live.js":   "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// policy lets a page load only what this handler serves.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// mostAtOnce is how many requests of one client may run at the same time, besides event streams.
const mostAtOnce = 16

// bodyTime is how long a form may take to arrive.
const bodyTime = 10 * time.Second

// pageOf returns the page of a request: the path below the mux's pattern, or the whole path without
// a pattern.
func pageOf(r *http.Request) string {
	if at := strings.IndexByte(r.Pattern, '/'); at >= 0 {
		if page, is := strings.CutPrefix(r.URL.Path, r.Pattern[at:]); is {
			return page
		}
	}
	return strings.TrimPrefix(r.URL.Path, "/")
}

// ServeHTTP serves the pages below the handler's pattern in a http.ServeMux, or at the root of the
// path that http.StripPrefix leaves.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // where the reader has deadlines
	}
	page := pageOf(r)
	kind, isAsset := assetTypes[page]
	if !isAsset && page != "events" {
		leave, is := h.requests.enter(h.clientOf(r), mostAtOnce)
		if !is {
			tooMany(w,
				fmt.Sprintf("%d requests of yours are under way. Wait some seconds, then load the page again.", mostAtOnce))
			return
		}
		defer leave()
	}
	switch {
	case r.Method == http.MethodPost && page == "key":
		h.change(w, r)
	case !isAsset && h.options.Authorize != nil && h.refused(w, r, h.options.Authorize(r)):
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case isAsset:
		h.asset(w, r, page, kind)
	case page == "events" && r.Method == http.MethodGet:
		h.events(w, r)
	case pages[page] != nil:
		h.page(w, r, page)
	case strings.Contains(page, "/"): // below other pages, from where a page of ours reaches no other
		http.NotFound(w, r)
	default:
		f := frame{Throttle: h.hub.name, Title: "No such page", Page: "missing",
			Problem: "There is no page " + view.Printable(page) + "."}
		h.execute(w, missing, f, http.StatusNotFound)
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
