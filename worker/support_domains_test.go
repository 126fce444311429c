package worker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// domainJob reads a job that has a domain too from a task's headers.
func domainJob(ctx context.Context, task *asynq.Task) (throttle.Job, error) {
	job, err := jobOf(ctx, task)
	job.Keys["domain"] = task.Headers()["domain"]
	return job, err
}

// domains returns limits for all, for each tenant and for each domain.
func domains(global, tenant, domain throttle.Limit) []throttle.Scope {
	return []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{global}},
		{Name: "tenant", Limits: []throttle.Limit{tenant}},
		{Name: "domain", Limits: []throttle.Limit{domain}},
	}
}

// wide are limits that hold no task back in the tests of waits.
var wide = domains(throttle.PerHour(1000), throttle.PerHour(1000), throttle.PerHour(1000))

// inDomains runs a test with tasks that have a domain.
func inDomains(t *testing.T, scopes []throttle.Scope, test func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, scopes, func(t *testing.T, w *world) {
		w.shaper = w.newShaperOf(domainJob, nil)
		test(t, w)
	})
}

// mail returns a task for a domain.
func mail(n int, tenant, domain string, opts ...asynq.Option) (task *asynq.Task, id string) {
	id = fmt.Sprintf("%06d", n)
	return worker.NewTask("mail", nil, mailHeaders(tenant, domain), append(opts, asynq.TaskID(id))...), id
}

func mailHeaders(tenant, domain string) map[string]string {
	h := headers(tenant, 1)
	h["domain"] = domain
	return h
}

// mail enqueues a task for a domain.
func (w *world) mail(n int, tenant, domain string, opts ...asynq.Option) string {
	w.t.Helper()
	task, id := mail(n, tenant, domain, opts...)
	w.send(task)
	return id
}

// state returns the state of a scope key.
func (w *world) state(scope, key string) inspect.Usage {
	w.t.Helper()
	state, err := inspect.New(w.throttle).Usage(w.t.Context(), scope, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

// usedOf returns how many units a scope key has used and how many it has booked.
func (w *world) usedOf(scope, key string) (used, booked int64) {
	w.t.Helper()
	usage, err := inspect.New(w.throttle).Usage(w.t.Context(), scope, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return usage.Limits[0].Used, usage.Limits[0].Booked
}

// unused fails the test if a job to this domain has anything charged or booked.
func (w *world) unused(domain string) {
	w.t.Helper()
	for _, key := range [][2]string{{"domain", domain}, {"tenant", "acme"}, {throttle.Global, ""}} {
		if used, booked := w.usedOf(key[0], key[1]); used != 0 || booked != 0 {
			w.t.Errorf("%d units of %s are used and %d booked, want 0", used, key[0], booked)
		}
	}
}
