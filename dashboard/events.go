package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

const (
	// mostStreams is how many pages are kept up to date in all, and mostOfClient for one client.
	// Other pages say that they do not update themselves.
	mostStreams  = 200
	mostOfClient = 40
	// stuck is how long a browser may take to read an event.
	stuck = 10 * time.Second
)

// events sends a browser the current content of its page once a second, until the browser goes.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	page := query.Get("page")
	query.Del("page")
	if pages[page] == nil || page == "job" {
		http.NotFound(w, r)
		return
	}
	leave, is := h.streams.enter(h.clientOf(r), mostOfClient)
	if !is {
		tooMany(w,
			fmt.Sprintf(
				"%d pages are open from where you are, which is all that are kept up to date for one client. This "+
					"page stays as it is: close others.", mostOfClient))
		return
	}
	defer leave()
	if h.streams.inAll() > mostStreams {
		tooMany(w,
			fmt.Sprintf(
				"%d pages are open in browsers, which is all that are kept up to date. This page stays as it is "+
					"until some are closed.", mostStreams))
		return
	}
	key := keyOf(page, query)
	if key != nil && h.hub.board(r.Context(), nil).refuses(*key) != "" {
		http.NotFound(w, r)
		return
	}
	defer h.hub.watch(key)()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		part, done, err := h.live(r.Context(), page, query)
		if err != nil {
			h.options.Logger.Error("dashboard: a page cannot be written: " + err.Error())
			return
		}
		if !send(w, part) {
			return
		}
		next := time.NewTimer(time.Until(done.Add(every)))
		select {
		case <-next.C:
		case <-r.Context().Done():
			next.Stop()
			return
		case <-h.closed:
			next.Stop()
			return
		}
	}
}

// send sends one event, and reports whether that worked.
func send(w http.ResponseWriter, part []byte) bool {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(stuck)) // where the writer has deadlines
	var b bytes.Buffer
	b.WriteString("event: live\n")
	for line := range bytes.Lines(part) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	if _, err := w.Write(b.Bytes()); err != nil {
		return false
	}
	return control.Flush() == nil
}
