package dashboard

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

//go:embed templates
var templates embed.FS

// pages are the templates of each page, by the last element of its path.
var pages = map[string]*template.Template{
	"":          parsed("overview"),
	"key":       parsed("key"),
	"job":       parsed("job"),
	"changes":   parsed("changes"),
	"processes": parsed("processes"),
}

// missing is the page for an address without a page.
var missing = parsed("missing")

func parsed(page string) *template.Template {
	return template.Must(template.New("layout.html").Funcs(functions).ParseFS(templates, "templates/layout.html",
		"templates/parts.html", "templates/"+page+".html"))
}

// frame is the part that all pages have.
type frame struct {
	Throttle, Title, Page string
	// Events is the address of the page's event stream; empty for a page that does not update
	// itself.
	Events string
	// Problem is why the rest of the page shows an earlier reading; empty without an error.
	Problem string
	Now     time.Time // on Redis' clock
	Body    any       // of the live part; nil if nothing is known

	// The part that does not change while a browser shows the page.
	Scopes   []throttle.Scope
	Allowed  bool
	Of       scopeKey
	For      string // how long a pause lasts or until when, as entered
	Lasts    string // how long limits stay in force or until when, as entered
	Zone     string // the reader's time zone, as entered
	Why      string
	Limits   string // the limits as entered
	InForce  string // the limits that are in force
	Tried    any
	Lifted   string // the limits that the tried ones would lift
	Asked    *question
	Refused  string
	ID       string
	Searched bool
	Set      []changeRow
}

// instantNow is embedded where a template shows how far away an instant is.
type instantNow struct{ Now time.Time }

// page serves a whole page.
func (h *Handler) page(w http.ResponseWriter, r *http.Request, page string) {
	f, status := h.frame(r.Context(), page, r.URL.Query())
	if page == "key" && status == http.StatusOK {
		query := r.URL.Query()
		f.keep(query)
		if f.Limits != "" {
			status = h.try(r.Context(), &f, query)
		}
	}
	h.write(w, page, f, status)
}

// keep keeps what was entered in a form.
func (f *frame) keep(entered url.Values) {
	f.For, f.Limits, f.Lasts = entered.Get("for"), entered.Get("limits"), entered.Get("lasts")
	f.Zone, f.Why = entered.Get("zone"), entered.Get("why")
}

// write writes a whole page.
func (h *Handler) write(w http.ResponseWriter, page string, f frame, status int) {
	h.execute(w, pages[page], f, status)
}

func (h *Handler) execute(w http.ResponseWriter, page *template.Template, f frame, status int) {
	var b bytes.Buffer
	if err := page.Execute(&b, f); err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		h.options.Logger.Error("dashboard: a page cannot be written: " + err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client has gone
}

// live returns the part of a page that changes, rendered once for all its browsers, and when it was
// read.
func (h *Handler) live(ctx context.Context, page string, query url.Values) ([]byte, time.Time, error) {
	b := h.hub.board(ctx, nil) // with the open scope keys
	part, err := b.drawn.part(page+"?"+query.Encode(), func() ([]byte, error) {
		var w bytes.Buffer
		f := h.frameOf(b, page, query)
		err := pages[page].ExecuteTemplate(&w, "live", f)
		return w.Bytes(), err
	})
	return part, b.done, err
}

// keyOf returns the scope key of a page; nil for other pages.
func keyOf(page string, query url.Values) *scopeKey {
	if page != "key" {
		return nil
	}
	return &scopeKey{query.Get("scope"), query.Get("key")}
}

// frame reads the content of a page.
func (h *Handler) frame(ctx context.Context, page string, query url.Values) (frame, int) {
	if page == "job" {
		return h.job(ctx, query.Get("id"))
	}
	b := h.hub.board(ctx, nil)
	key := keyOf(page, query)
	if key != nil {
		if refused := b.refuses(*key); refused != "" {
			return frame{Throttle: h.hub.name, Title: "No such scope key", Page: page, Problem: refused, Of: *key},
				http.StatusNotFound
		}
		b = h.hub.board(ctx, key)
	}
	f := h.frameOf(b, page, query)
	if page == "changes" && query.Get("all") != "" && b.throttle != nil {
		f.Searched = true
		h.search(ctx, b, &f)
	}
	status := http.StatusOK
	if b.err != nil {
		status = http.StatusServiceUnavailable
	}
	return f, status
}

// refuses returns why a scope key cannot exist; empty if it may exist.
func (b *board) refuses(key scopeKey) string {
	switch {
	case b.throttle == nil: // the configuration is not known yet
		return ""
	case !b.process.hasScope(key.Scope):
		return "The throttle has no such scope."
	case key.Scope == throttle.Global && key.Key != "":
		return "The scope global has no keys: leave the key empty."
	case key.Scope != throttle.Global && key.Key == "":
		return "Name a key of the scope " + key.Scope + "."
	}
	return ""
}

// frameOf fills in a page from a board.
func (h *Handler) frameOf(b *board, page string, query url.Values) frame {
	f := frame{
		Throttle: h.hub.name, Page: page, Problem: problem(b.err), Now: b.now,
		Scopes: b.process.scopes(), Allowed: h.options.AllowChanges,
	}
	values := url.Values{"page": {page}}
	switch page {
	case "":
		f.Title, f.Body = "Overview", overviewOf(b, h.options.Stats != nil)
	case "key":
		f.Of = *keyOf(page, query)
		f.Title, f.Body = f.Of.Scope+" "+view.Printable(f.Of.Key), keyPageOf(b, f.Of)
		if s := b.keys[f.Of]; s != nil {
			f.InForce = limitsInForce(s.usage)
		}
		values.Set("scope", f.Of.Scope)
		values.Set("key", f.Of.Key)
	case "changes":
		f.Title, f.Body = "Changes", changesOf(b)
	case "processes":
		f.Title, f.Body = "Processes", processesOf(b)
	}
	if b.throttle == nil { // no reading has worked yet
		f.Body = nil
	}
	f.Events = "events?" + values.Encode()
	return f
}
