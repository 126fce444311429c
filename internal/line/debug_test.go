package line_test

import (
	"fmt"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func TestDebug(t *testing.T) {
	w := newWorld(t, settingsOf(map[string][]line.Limit{"global": {per(20, 10*second)}}))
	began := w.now
	w.maxWait = 100 * milli
	w.actual = func(j *worldJob) int64 { return 1 }
	for i := range 400 {
		w.arrive(id("a%d", i), "a", []string{"global:"}, 5)
	}
	for i := range 400 {
		w.arrive(id("b%d", i), "b", []string{"global:"}, 1)
	}
	for m := range int64(20) {
		w.run(began + (m+1)*10*second)
		u := map[string]int{}
		for _, j := range w.served {
			u[j.flow()]++
		}
		fmt.Println(m, u)
		if m < 4 {
		fmt.Println(w.line.Dump(w.now))
		}
	}
}
