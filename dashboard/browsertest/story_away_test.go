package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// TestRedisAwayAndBack: a page that is open says in one line that Redis does not answer,
// keeps what it knew, and is well again when Redis is, without being asked for again.
func TestRedisAwayAndBack(t *testing.T) {
	w := newWorld(t)
	b := openTab(t, w.base)
	b.open("")
	b.shows("6 jobs of 2 flows")
	b.mark("same")
	w.server.Pause()
	b.await(`document.querySelectorAll('[role=alert]').length === 1`)
	b.shows("What follows is how it was at")
	b.shows("6 jobs of 2 flows")
	w.server.Resume()
	b.await(`document.querySelectorAll('[role=alert]').length === 0`)
	b.shows("6 jobs of 2 flows")
	b.await("window.same")
}

// TestManyWaiting: with many jobs in line of many tenants each page is there soon. LONG=1
// has 100,000 jobs of 10,000 tenants.
func TestManyWaiting(t *testing.T) {
	w := newWorld(t)
	jobs, tenants := longtest.Of(4000, 100_000), longtest.Of(400, 10_000)
	for first := 0; first < jobs; first += 1000 {
		some := make([]throttle.Job, 1000)
		for i := range some {
			tenant := fmt.Sprint("t", (first+i)%tenants)
			some[i] = throttle.Job{ID: fmt.Sprint("many-", first+i), Weight: 1, Keys: map[string]string{"tenant": tenant}}
		}
		for _, answer := range w.throttle.ReserveAll(t.Context(), some) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
		}
	}
	b := openTab(t, w.base)
	b.expectErrors() // on a slow machine a page may say that it takes too long
	last := fmt.Sprint("many-", jobs-1)
	for _, page := range [][2]string{
		{"", " jobs of "}, {"key?scope=tenant&key=t7", "What its own jobs wait for"},
		{"key?scope=global&key=", "Flows that wait for it"},
		{"job?id=" + last, "In line since"}, {"changes?all=1", "gmail.example"}, {"processes", "configured alike"},
	} {
		began := time.Now()
		for b.open(page[0]); value[bool](b, `document.body.innerText.includes('This takes longer than')`); {
			b.open(page[0])
		}
		b.shows(page[1])
		t.Logf("%5d ms  /%s", time.Since(began).Milliseconds(), page[0])
	}
	b.open("")
	if rows := value[int](b, "document.querySelectorAll('tbody tr').length"); rows > 60 {
		t.Errorf("the overview has %d rows", rows)
	}
}
