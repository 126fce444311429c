package throttle_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/throttle/throttletest"
)

const (
	processes = 8
	eachAsks  = 25 // jobs, each in a goroutine of its own
)

// errand is what one of several processes is told to do.
type errand struct {
	Addr, Name  string
	Scopes      []throttle.Scope
	Process     int
	Tenants     int   // that the jobs are of, in turn
	Heaviest    int64 // of the weights, which go in turn too
	Connections int   // 0: as many as it takes
	FirstAlone  bool  // it asks for its first job, and waits for another line before the others
}

// decision is a line that a process prints.
type decision struct {
	ID       string
	Outcome  throttle.Outcome
	Now, At  int64 // us: when it was made, and for when
	Weight   int64
	Tenant   string
	Replayed bool
}

// errandVariable makes the test binary one of the processes.
const errandVariable = "THROTTLE_TEST_ERRAND"

// obey is the main function of a process. It says that it is ready, waits for a line, asks
// for all its jobs at the same time and prints the decisions.
func obey(text string) error {
	var o errand
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr, PoolSize: o.Connections})
	th, err := throttle.New(o.Name, client, o.Scopes,
		&throttle.Options{Timeout: patient, BreakAfter: -1, Lookahead: maxWindow, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout) // each line in one write
	if err := out.Encode("ready"); err != nil {
		return err
	}
	begin := bufio.NewReader(os.Stdin)
	if _, err := begin.ReadString('\n'); err != nil {
		return err
	}
	first := 0
	if o.FirstAlone {
		made, err := o.decide(th, first)
		if err := errors.Join(err, out.Encode(made)); err != nil {
			return err
		}
		if _, err := begin.ReadString('\n'); err != nil {
			return err
		}
		first++
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i := first; i < eachAsks; i++ {
		wg.Go(func() {
			made, err := o.decide(th, i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = out.Encode(made)
			}
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	return errors.Join(failed, client.Close())
}

// decide asks for one job until there is an answer.
func (o errand) decide(th *throttle.Throttle, i int) (decision, error) {
	n := o.Process*eachAsks + i
	job := throttle.Job{ID: fmt.Sprint("job", n), Weight: 1 + int64(n)%o.Heaviest,
		Keys: of(fmt.Sprint("t", n%o.Tenants)), Nonce: fmt.Sprint("n", n)}
	for {
		r, err := th.Reserve(context.Background(), job)
		if errors.Is(err, throttle.ErrUnavailable) {
			continue
		}
		return decision{job.ID, r.Outcome, r.Now.UnixMicro(), r.Start.UnixMicro(), job.Weight, job.Keys["tenant"],
			r.Replayed}, err
	}
}

// process is a process that runs obey.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	begin io.Writer
	lines *json.Decoder
}

// startProcess returns when the process is ready.
func startProcess(t *testing.T, o errand) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), errandVariable+"="+string(text))
	p.cmd.Stderr = t.Output()
	stdin, inErr := p.cmd.StdinPipe()
	stdout, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.begin, p.lines = stdin, json.NewDecoder(stdout)
	var ready string
	if err := p.lines.Decode(&ready); err != nil || ready != "ready" {
		t.Fatalf("a process says %q, %v; want ready", ready, err)
	}
	return p
}

func (p *process) release() {
	p.t.Helper()
	if _, err := io.WriteString(p.begin, "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// read reads up to n decisions, fewer where the process ends before.
func (p *process) read(n int) (made []decision) {
	for range n {
		var d decision
		if p.lines.Decode(&d) != nil {
			break
		}
		made = append(made, d)
	}
	return made
}

// decided are the decisions of all, by job. Of one asked for again the last counts.
type decided map[string]decision

func (all decided) add(made []decision) {
	for _, d := range made {
		all[d.ID] = d
	}
}

// sums are the units granted and booked, and how many decisions were replayed.
func (all decided) sums() (granted, booked int64, replayed int) {
	for _, d := range all {
		switch d.Outcome {
		case throttle.Granted:
			granted += d.Weight
		case throttle.Booked:
			booked += d.Weight
		}
		if d.Replayed {
			replayed++
		}
	}
	return granted, booked, replayed
}

// check compares what the processes say with the limits, and with what Redis counts. On a slow machine Redis may count
// more: a grant whose answer was lost, and that nobody asked for again within a second, is given back by its process,
// which may have ended before.
func (all decided) check(t *testing.T, o errand, direct *redis.Client, slow bool) {
	t.Helper()
	if len(all) != processes*eachAsks {
		t.Errorf("%d jobs were decided, want %d", len(all), processes*eachAsks)
	}
	var starts []throttletest.Start
	for _, d := range all {
		starts = append(starts, throttletest.Start{At: time.UnixMicro(d.At), Weight: d.Weight, Keys: of(d.Tenant)})
	}
	for _, over := range throttletest.Check(o.Scopes, starts) {
		t.Errorf("granted and booked by several processes: %s", over)
	}
	granted, booked, replayed := all.sums()
	u, b := used(t, direct, o.Name, o.Scopes)
	if u < granted || u > granted && !slow || b != booked {
		t.Errorf("Redis has %d units used and %d booked, the processes were granted %d and booked %d", u, b, granted, booked)
	}
	t.Logf("%d units granted, %d booked; %d decisions replayed", granted, booked, replayed)
}

// TestF55_EightProcesses: of 200 jobs of eight processes exactly those are granted that
// the limits allow, each is charged once, and the slots of the others are such that all of
// them can start then.
func TestF55_EightProcesses(t *testing.T) {
	t.Parallel()
	oneKey := tenantAndGlobal(
		throttle.Limit{Units: 77, Window: time.Hour, Precision: throttle.Exact},
		throttle.Limit{Units: 500, Window: time.Hour, Precision: time.Minute})
	severalKeys := tenantAndGlobal(
		throttle.Limit{Units: 20, Window: time.Hour, Precision: time.Minute},
		throttle.Limit{Units: 100, Window: time.Hour, Precision: throttle.Exact})
	rows := []struct {
		name      string
		errand    errand
		granted   int64 // units; 0: whatever the limits allow
		meanwhile func(t *testing.T, server *redistest.Server, proxy *redistest.Proxy) (end func())
	}{
		{"one key", errand{Scopes: oneKey, Tenants: 1, Heaviest: 1}, 77, nil},
		{"several keys", errand{Scopes: severalKeys, Tenants: 8, Heaviest: 1}, 100, nil},
		{"light and heavy jobs", errand{Scopes: severalKeys, Tenants: 8, Heaviest: 7}, 0, nil},
		{"one key, replies lost", errand{Scopes: oneKey, Tenants: 1, Heaviest: 1}, 77, loseReplies},
		{"several keys, replies lost", errand{Scopes: severalKeys, Tenants: 8, Heaviest: 1}, 100, loseReplies},
		{"one key, scripts flushed", errand{Scopes: oneKey, Tenants: 1, Heaviest: 1}, 77, flushScripts},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			o := row.errand
			o.Addr, o.Name = proxy.Addr, redistest.Name(t)
			all := make([]*process, processes)
			for i := range all {
				o.Process = i
				all[i] = startProcess(t, o)
			}
			end := func() {}
			if row.meanwhile != nil {
				end = row.meanwhile(t, server, proxy)
			}
			for _, p := range all {
				p.release()
			}
			said := make(decided)
			for _, p := range all {
				said.add(p.read(eachAsks))
			}
			end()
			for i, p := range all {
				if err := p.cmd.Wait(); err != nil {
					t.Errorf("process %d: %v", i, err)
				}
			}
			granted, _, _ := said.sums()
			slow := granted < row.granted && row.meanwhile != nil && !longtest.Full()
			said.check(t, o, server.Client(t), slow)
			switch {
			case slow:
				t.Logf("%d units granted of %d: the others were given back on this slow machine", granted, row.granted)
			case row.granted > 0 && granted != row.granted:
				t.Errorf("%d units granted, want exactly %d", granted, row.granted)
			}
		})
	}
}

// loseReplies loses every other one of the first replies, also those of scripts not known.
func loseReplies(t *testing.T, _ *redistest.Server, proxy *redistest.Proxy) (end func()) {
	for n := 2; n <= 40; n += 2 {
		proxy.DropReply("evalsha", n)
	}
	return func() {
		t.Helper()
		t.Logf("%d replies were lost", proxy.Dropped())
		if proxy.Dropped() == 0 { // how many there are depends on how many jobs go in one call
			t.Error("no reply was lost")
		}
	}
}

// flushScripts makes Redis forget the scripts all the time.
func flushScripts(t *testing.T, server *redistest.Server, _ *redistest.Proxy) (end func()) {
	client := server.Client(t)
	done := make(chan struct{})
	var wg sync.WaitGroup
	flushed := 0
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := client.ScriptFlush(context.Background()).Err(); err != nil {
				t.Errorf("SCRIPT FLUSH: %v", err)
				return
			}
			flushed++
		}
	})
	return func() {
		t.Helper()
		close(done)
		wg.Wait()
		t.Logf("flushed %d times", flushed)
		if flushed < 3 && longtest.Full() {
			t.Errorf("flushed %d times, want some", flushed)
		}
	}
}

// TestF55_EightProcessesOneKilled: one of the processes is killed in the middle of its
// jobs. Another takes its place and asks for the same jobs: none is lost, booked jobs have
// their slots, and the grants of the dead process stay charged, so that the limit holds for
// all processes together.
func TestF55_EightProcessesOneKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct := server.Client(t)
	deaf := redistest.NewProxy(t, server.Addr)
	const limit = 77
	o := errand{
		Addr: server.Addr, Name: redistest.Name(t), Tenants: 1, Heaviest: 1,
		Scopes: tenantAndGlobal(
			throttle.Limit{Units: limit, Window: time.Hour, Precision: throttle.Exact},
			throttle.Limit{Units: 500, Window: time.Hour, Precision: time.Minute}),
	}
	doomed := o
	doomed.Addr, doomed.FirstAlone = deaf.Addr, true
	victim := startProcess(t, doomed)
	others := make([]*process, processes-1)
	for i := range others {
		o.Process = i + 1
		others[i] = startProcess(t, o)
	}
	o.Process = 0
	heir := startProcess(t, o)
	victim.release()
	before := victim.read(1)
	deaf.Mute("eval") // of the others it does not hear any more
	victim.release()
	redistest.Await(t, "others of the victim's jobs are decided", func() bool {
		u, _ := used(t, direct, o.Name, o.Scopes)
		return u > 1
	})
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	before = append(before, victim.read(eachAsks)...)
	deaf.Refuse() // what it has sent is with Redis now
	dead, _ := used(t, direct, o.Name, o.Scopes)
	for _, p := range append(others, heir) {
		p.release()
	}
	if err := victim.cmd.Wait(); err == nil || len(before) != 1 {
		t.Fatalf("killed after %d of %d jobs: %v; want after one", len(before), eachAsks, err)
	}
	said := make(decided)
	for _, p := range append(others, heir) {
		said.add(p.read(eachAsks))
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if len(said) != processes*eachAsks {
		t.Errorf("%d jobs were decided, want %d", len(said), processes*eachAsks)
	}
	granted, booked, _ := said.sums()
	if granted != limit-dead || booked != processes*eachAsks-granted {
		t.Errorf("%d units granted and %d booked, want %d, beside the %d of the dead, and the rest", granted,
			booked, limit-dead, dead)
	}
	if u, b := used(t, direct, o.Name, o.Scopes); u != limit || b != booked {
		t.Errorf("Redis has %d units used and %d booked, want %d and %d", u, b, limit, booked)
	}
}
