package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// fakeRedis answers the scripts as a Redis with room for every job: it grants all jobs, and knows
// the last asking of each asker.
type fakeRedis struct {
	redis.Scripter

	mu      sync.Mutex
	calls   []fakeCall
	last    map[string]int
	replies map[string]string
	charged map[string]int // grants by job
	settled []string       // jobs

	takes time.Duration // how long a call takes
	hang  chan struct{} // calls wait for it, unless it is nil
	lose  bool          // calls are carried out, and their answers are lost
	fail  error         // calls fail with it, and are not carried out

	failing map[string]error // as fail, by the name of a script
	losing  string           // as lose, for the script of this name
}

type fakeCall struct {
	script string
	args   []string
}

func newFake() *fakeRedis {
	return &fakeRedis{last: make(map[string]int), replies: make(map[string]string), charged: make(map[string]int)}
}

func (f *fakeRedis) EvalSha(ctx context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return redis.NewCmdResult(nil, ctx.Err())
		}
	}
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return redis.NewCmdResult(nil, f.fail)
	}
	if err := f.failing[scriptOf(sha)]; err != nil {
		return redis.NewCmdResult(nil, err)
	}
	reply, err := f.run(scriptOf(sha), texts(args))
	if err == nil && (f.lose || f.losing == scriptOf(sha)) {
		reply, err = nil, io.EOF
	}
	return redis.NewCmdResult(reply, err)
}

func scriptOf(sha string) string {
	for _, s := range scripts {
		if s.hash == sha {
			return s.name
		}
	}
	return "unknown"
}

func texts(args []any) []string {
	list := make([]string, len(args))
	for i, arg := range args {
		list[i] = fmt.Sprint(arg)
	}
	return list
}

func (f *fakeRedis) run(script string, args []string) (any, error) {
	f.calls = append(f.calls, fakeCall{script, args})
	now := strconv.FormatInt(time.Now().UnixMicro(), 10)
	switch script {
	case "reserve":
		return f.reserve(now, args)
	case "settle":
		f.settled = append(f.settled, args[3])
		return []any{now, "0", int64(1)}, nil
	case "leave":
		return []any{now, "0", int64(1)}, nil
	}
	return nil, errors.New("no such script")
}

func (f *fakeRedis) reserve(now string, args []string) (any, error) {
	asker := args[3]
	asking, err := strconv.Atoi(args[4])
	switch {
	case err != nil:
		return nil, err
	case asking == peeking:
		return now + " 0\n1 " + now + " 0 0", nil
	case asking == f.last[asker]:
		return f.replies[asker], nil
	case asking < f.last[asker]:
		return nil, errors.New("STALE")
	}
	lines := []string{now + " 0"}
	for i := 5; i < len(args); i += 3 {
		f.charged[args[i]]++
		lines = append(lines, "1 "+now+" 0 0")
	}
	f.last[asker], f.replies[asker] = asking, lines[0]+"\n"+strings.Join(lines[1:], "\n")
	return f.replies[asker], nil
}

// askings returns the numbers of the calls of reserve.
func (f *fakeRedis) askings() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.script == "reserve" {
			list = append(list, c.args[4])
		}
	}
	return list
}

// givenBack returns the jobs that were settled.
func (f *fakeRedis) givenBack() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.settled)
}

func (f *fakeRedis) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakeThrottle has the scopes global, tenant and, optional, domain.
func fakeThrottle(t *testing.T, client *fakeRedis, options Options) *Throttle {
	t.Helper()
	th, err := New("t", client, []Scope{
		{Name: Global, Limits: []Limit{PerSecond(1000)}},
		{Name: "tenant", Limits: []Limit{PerDay(2000), PerMinute(100)}},
		{Name: "domain", Optional: true, Mode: Shadow},
	}, &options)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func fakeJob(id string) Job {
	return Job{ID: id, Weight: 1, Keys: map[string]string{"tenant": "acme"}}
}
