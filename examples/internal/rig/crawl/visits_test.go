package crawl

import (
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
)

func TestDelays(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	visited := []Visit{{url: "a", Start: at(0)}, {url: "a", Start: at(100)}, {url: "b", Start: at(50)}}
	accesses := []site.Access{{URL: "a", At: at(10)}, {URL: "b", At: at(53)}, {URL: "a", At: at(120)},
		{URL: "unknown", At: at(900)}}
	if longest, shortest := delays(visited, accesses); longest != 20*time.Millisecond || shortest != 3*time.Millisecond {
		t.Errorf("got %s and %s, want 20ms and 3ms", longest, shortest)
	}
	if longest, shortest := delays(visited, nil); longest != 0 || shortest != 0 {
		t.Errorf("without accesses: got %s and %s", longest, shortest)
	}
	if _, shortest := delays(visited, []site.Access{{URL: "a", At: at(-5)}}); shortest != -5*time.Millisecond {
		t.Errorf("before its grant: got %s, want -5ms", shortest)
	}
}
