package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// mostForm is the size limit of a form, in bytes.
const mostForm = 16 << 10

// change applies the form of a request to a scope key, if the request is authorized, and redirects
// to the scope key's page.
func (h *Handler) change(w http.ResponseWriter, r *http.Request) {
	if h.refused(w, r, h.mayChange(r)) {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "this is no form", http.StatusBadRequest)
		return
	}
	key := scopeKey{r.PostForm.Get("scope"), r.PostForm.Get("key")}
	query := url.Values{"scope": {key.Scope}, "key": {key.Key}}
	f, status := h.frame(r.Context(), "key", query)
	if status != http.StatusOK {
		h.write(w, "key", f, status)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	f.keep(r.PostForm)
	entered, err := h.formOf(ctx, r.PostForm)
	var asked *question
	if err == nil {
		asked, err = h.ask(ctx, h.hub.board(ctx, nil).throttle, key, f.Scopes, entered)
	}
	switch {
	case err != nil:
		f.Refused = problem(err)
		h.write(w, "key", f, http.StatusServiceUnavailable)
		return
	case asked != nil:
		f.Asked = asked
		h.write(w, "key", f, http.StatusOK)
		return
	}
	what, status, err := h.do(ctx, key, entered, h.options.Who(r))
	if errors.As(err, new(*throttle.OptionError)) || errors.As(err, new(*throttle.ArgumentError)) {
		status = http.StatusBadRequest
	}
	if err != nil {
		f.Refused = problem(err)
		h.write(w, "key", f, status)
		return
	}
	h.hub.changed(key)
	h.options.Logger.Info("dashboard: changed", zap.String("who", h.options.Who(r)), zap.String("throttle", h.hub.name),
		zap.String("scope", key.Scope), zap.String("key", key.Key), zap.String("what", what))
	w.Header().Set("Location", "key?"+query.Encode()) // relative, since the prefix may have been stripped
	w.WriteHeader(http.StatusSeeOther)
}

// refused reports whether there is a reason to refuse a request. If so, it answers the request and logs the reason.
func (h *Handler) refused(w http.ResponseWriter, r *http.Request, why error) bool {
	if why == nil {
		return false
	}
	h.options.Logger.Warn("dashboard: a request is refused", zap.String("who", h.options.Who(r)),
		zap.String("throttle", h.hub.name),
		zap.String("method", r.Method), zap.String("page", pageOf(r)), zap.Error(why))
	http.Error(w, "this request is refused", http.StatusForbidden)
	return true
}

// mayChange returns why a request must not change anything; nil if the request may.
func (h *Handler) mayChange(r *http.Request) error {
	if !h.options.AllowChanges {
		return errReadOnly
	}
	if err := h.origin.Check(r); err != nil {
		return err
	}
	if h.options.Authorize == nil {
		return nil
	}
	return h.options.Authorize(r)
}

var errReadOnly = errors.New("dashboard: Options.AllowChanges is not set")

// limitsEntered returns the limits of a form and how long they last; an error if they cannot be set.
func limitsEntered(th *inspect.Inspector, key scopeKey, f form) ([]throttle.Limit, term, error) {
	limits, err := throttle.ParseLimits(f.Get("limits"))
	if err != nil {
		return nil, term{}, err
	}
	of, err := termOf(f, "lasts")
	if err != nil {
		return nil, term{}, err
	}
	return limits, of, th.CheckLimits(key.Scope, limits, inspect.Until(of.end), inspect.Why(f.Get("why")))
}

// do applies a form, and describes the change. Beside an error, status is that of the HTTP answer.
func (h *Handler) do(ctx context.Context, key scopeKey, f form,
	who string) (what string, status int, err error) {
	th, by, why := h.hub.board(ctx, nil).throttle, inspect.By(who), inspect.Why(f.Get("why"))
	switch do := f.Get("do"); do {
	case "pause":
		of, err := termOf(f, "for")
		if err == nil && of.end.IsZero() {
			err = errEndless
		}
		if err != nil {
			return "", http.StatusBadRequest, err
		}
		end, err := th.Pause(ctx, key.Scope, key.Key, of.end, by, why)
		return "paused until " + end.UTC().Format(time.RFC3339), http.StatusServiceUnavailable, err
	case "resume":
		_, err = th.Resume(ctx, key.Scope, key.Key, by, why)
		return "resumed", http.StatusServiceUnavailable, err
	case "limits":
		limits, of, err := limitsEntered(th, key, f)
		if err != nil {
			return "", http.StatusBadRequest, err
		}
		return "limits " + view.LimitTexts(limits), http.StatusServiceUnavailable,
			th.SetLimits(ctx, key.Scope, key.Key, limits, inspect.Until(of.end), by, why)
	case "reset":
		return "limits as configured", http.StatusServiceUnavailable, th.ResetLimits(ctx, key.Scope, key.Key, by, why)
	default:
		return "", http.StatusBadRequest, fmt.Errorf("nothing is called %q: it is pause, resume, limits or reset", do)
	}
}
