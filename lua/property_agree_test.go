package lua_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

const second = int64(1_000_000)

// TestScriptsAgreeWithLine goes through random histories and compares the scripts with
// package line at every step.
func TestScriptsAgreeWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			history(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{agree-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

// TestUsualCaseAgreesWithLine compares them in histories in which mostly light jobs find room under large limits, until
// these are full. The scripts decide this case on a path of its own.
func TestUsualCaseAgreesWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			usualHistory(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{usual-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

// TestUsualCaseLeavesFineLedgers: a ledger that gets coarser, because it counts many units, does so on the path of the
// usual case too.
func TestUsualCaseLeavesFineLedgers(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		exact := []line.Limit{{Units: 20_000, Span: line.Window(7 * second), Precision: 1}}
		m := newMachine(&scripted{client: client, prefix: fmt.Sprintf("thr:{fine-%p}:4:", t), settings: line.Settings{
			Lookahead: second, Scopes: map[string]line.Scope{"global": {Mode: line.Enforce, Limits: exact}},
		}})
		for i, cost := range []int64{4900, 16_000, 7000} {
			jobs := []line.Job{{ID: fmt.Sprint(i), Lane: "|global:", Costs: []int64{cost}, Latest: line.Never, Share: 1}}
			_, got, err := m.s.reserve(m.now, jobs)
			want := wire.AnswerText(m.l.Reserve(m.now, m.s.settings, jobs)[0])
			if err != nil || got[0] != want {
				t.Errorf("%d units: the script answers %q, %v; package line %q", cost, got[0], err, want)
			}
			m.now++
		}
	})
}

// TestRaisedLimitsAgreeWithLine compares them in histories in which exact limits are raised, so that their ledgers
// become coarser.
func TestRaisedLimitsAgreeWithLine(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	onServers(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			raisedHistory(t, &scripted{client: client, prefix: fmt.Sprintf("thr:{raised-%p-%d}:4:", t, n.Add(1))})
		})
	})
}

func history(t *rapid.T, s *scripted) {
	s.settings = line.Settings{
		Lookahead: rapid.SampledFrom([]int64{second / 10, second, second, 5 * second, 400 * 86400 * second}).Draw(
			t, "lookahead"),
		Grace:  rapid.SampledFrom([]int64{1000, second, 5 * second}).Draw(t, "grace"),
		Scopes: make(map[string]line.Scope),
		Timed:  rapid.Bool().Draw(t, "timed"),
		Lower:  rapid.SampledFrom([]int64{9, 9, 1, 99}).Draw(t, "lower"),
	}
	s.steps = rapid.SampledFrom([]int{0, 0, 0, 30, 100, 300}).Draw(t, "steps")
	for _, name := range []string{"global", "tenant", "domain"} {
		mode := rapid.SampledFrom([]line.Mode{line.Enforce, line.Enforce, line.Enforce, line.Enforce, line.Shadow,
			line.Off}).Draw(t, "mode")
		s.settings.Scopes[name] = line.Scope{Mode: mode, Limits: drawLimits(t, name)}
	}
	s.settings.Counts = rapid.SampledFrom([]bool{true, true, false}).Draw(t, "counts")
	m := newMachine(s)
	t.Repeat(map[string]func(*rapid.T){
		"":          m.compareLengths,
		"advance":   m.advance,
		"arrive":    m.arrive,
		"arrive ":   m.arrive,
		"rollout":   m.rollOut,
		"come back": m.comeBack,
		"move":      m.move,
		"on time":   m.onTime,
		"pull":      m.pull,
		"pull ":     m.pull,
		"pulls":     m.pulls,
		"leave":     m.leave,
		"settle":    m.settle,
		"done":      m.done,
		"done ":     m.done,
		"renew":     m.renew,
		"pause":     m.pause,
		"report":    m.report,
		"report ":   m.report,
		"limits":    m.limits,
		"mode":      m.mode,
		"usage":     m.usage,
		"forget":    m.forget,
	})
}

func usualHistory(t *rapid.T, s *scripted) {
	s.settings = line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: make(map[string]line.Scope)}
	for _, name := range []string{"global", "tenant", "domain"} {
		var limits []line.Limit
		for _, w := range []int64{7 * second, 60 * second} {
			precision := rapid.SampledFrom([]int64{1, w / 100, w / 3}).Draw(t, "precision")
			if w == 7*second && rapid.Bool().Draw(t, "running") {
				limits = append(limits, line.Limit{Units: rapid.SampledFrom([]int64{50, 1000}).Draw(t, "at once"),
					Span: line.Lease(5 * second), Precision: second / 200})
			}
			limits = append(limits,
				line.Limit{Units: rapid.SampledFrom([]int64{100, 1000, 20_000}).Draw(t, "units"), Span: line.Window(w),
					Precision: precision})
		}
		limits = append(limits, drawQuotas(t)...)
		limits = limits[:rapid.IntRange(0, len(limits)).Draw(t, name)]
		s.settings.Scopes[name] = line.Scope{Mode: line.Enforce, Limits: append(drawHours(t), limits...)}
	}
	m := newMachine(s)
	m.now -= 302 * second // before a midnight in UTC
	t.Repeat(map[string]func(*rapid.T){
		"advance":  m.pass,
		"advance ": m.pass,
		"arrive":   m.arriveUsual,
		"arrive ":  m.arriveUsual,
		"settle":   m.settle,
		"done":     m.done,
		"done ":    m.done,
		"renew":    m.renew,
		"on time":  m.onTime,
		"pull":     m.pull,
		"usage":    m.usage,
		"usage ":   m.usage,
		"any else": m.arrive,
	})
}

func raisedHistory(t *rapid.T, s *scripted) {
	s.settings = line.Settings{Lookahead: second, Grace: 5 * second, Lower: 9, Scopes: make(map[string]line.Scope)}
	for _, name := range []string{"global", "tenant", "domain"} {
		mode := rapid.SampledFrom([]line.Mode{line.Enforce, line.Enforce, line.Shadow}).Draw(t, "mode")
		s.settings.Scopes[name] = line.Scope{Mode: mode, Limits: drawRaised(t, 100)}
	}
	m := newMachine(s)
	raise := func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"global:", "tenant:a", "global", "tenant", "domain"}).Draw(t, "of")
		limits := drawRaised(t, rapid.SampledFrom([]int64{100, 1000, 20_000, 20_000, 200_000, -1}).Draw(t, "units"))
		m.l.SetLimits(m.now, m.s.settings, name, limits, line.Never)
		m.compareSet(t, "limits", name, line.LimitsText(limits), 0, "", line.LimitsText(limits))
	}
	t.Repeat(map[string]func(*rapid.T){
		"advance":   m.pass,
		"arrive":    m.arriveHeavy,
		"arrive ":   m.arriveHeavy,
		"arrive  ":  m.arriveHeavy,
		"come back": m.comeBack,
		"on time":   m.onTime,
		"raise":     raise,
		"raise ":    raise,
		"settle":    m.settle,
		"leave":     m.leave,
		"report":    m.report,
		"pull":      m.pull,
		"usage":     m.usage,
	})
}
