package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/explain"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// jobPage explains why a job does not run.
type jobPage struct {
	explain.Explanation
	Asked    string // the requested ID
	Never    bool   // the job does not start unless limits change
	Held     bool   // the job does not start when its turn comes
	Rows     []limitRow
	Asynqmon string // the address of the task's page in asynqmon
}

type limitRow struct {
	explain.LimitState
	instantNow
}

// job explains a job. Each request reads Redis, one job at a time, and the page does not update
// itself.
func (h *Handler) job(ctx context.Context, id string) (frame, int) {
	f := frame{Throttle: h.hub.name, Page: "job", Title: "Job " + view.Printable(id), ID: id}
	if id == "" {
		f.Problem = "Name the ID of a job, or of a task in asynq."
		return f, http.StatusBadRequest
	}
	b := h.hub.board(ctx, nil)
	if b.throttle == nil {
		f.Problem = problem(b.err)
		return f, http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !h.explained.take(ctx) {
		f.Problem = problem(errBusy)
		return f, http.StatusServiceUnavailable
	}
	defer h.explained.leave()
	th, err := inspect.Attach(ctx, h.hub.name, h.client) // the inspector reads the flows' current shares
	var e explain.Explanation
	if err == nil {
		e, err = explain.Job(ctx, th, h.options.Asynq, id)
	}
	if err != nil {
		f.Problem = problem(err)
		return f, http.StatusServiceUnavailable
	}
	f.Now, f.Body = e.Now, h.jobPage(id, e)
	if e.State == explain.Unknown && e.Task == nil {
		return f, http.StatusNotFound
	}
	return f, http.StatusOK
}

func (h *Handler) jobPage(id string, e explain.Explanation) jobPage {
	p := jobPage{Explanation: e, Asked: id, Never: e.Never(), Held: e.Held()}
	for _, l := range e.Limits {
		p.Rows = append(p.Rows, limitRow{l, instantNow{e.Now}})
	}
	if e.Task == nil {
		if queue, task, _, is := worker.TaskOf(e.Job); is {
			p.Task = &explain.Task{Queue: queue, ID: task}
		}
	}
	if p.Task != nil && h.options.Asynqmon != "" {
		p.Asynqmon = strings.TrimSuffix(h.options.Asynqmon, "/") + "/queues/" + url.PathEscape(p.Task.Queue) +
			"/tasks/" + url.PathEscape(p.Task.ID)
	}
	return p
}
