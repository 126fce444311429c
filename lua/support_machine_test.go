package lua_test

import (
	"context"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

type machine struct {
	s      *scripted
	l      *line.Line
	now    int64
	drawn  int
	jobs   map[string]line.Job
	slots  map[string]int64
	ids    []string
	grants []line.Grant
}

func newMachine(s *scripted) *machine {
	return &machine{s: s, l: line.New(), now: 1_795_219_498_189_530, jobs: make(map[string]line.Job),
		slots: make(map[string]int64)}
}

func (m *machine) advance(t *rapid.T) {
	step := rapid.SampledFrom([]int64{1, 1000, second / 20, second / 3, second, 5 * second, 61 * second,
		3700 * second, 50_000 * second, 8 * 86_400 * second}).Draw(t, "step")
	m.now += step
}

// pass lets a part of a window pass, so that some of the units in the window leave it.
func (m *machine) pass(t *rapid.T) {
	m.now += rapid.SampledFrom([]int64{1, 1000, second / 3, second, 3 * second, 5 * second}).Draw(t, "step")
}

func (m *machine) drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"global:", "tenant:a", "tenant:b", "tenant:c", "domain:x", "domain:y"}).Draw(
		t, "name")
}

// forget deletes the edges of all calendars in Redis, so that they are computed again.
func (m *machine) forget(t *rapid.T) {
	if err := m.s.client.Del(context.Background(), m.s.prefix+"edges").Err(); err != nil {
		t.Fatal(err)
	}
	m.s.far = 0
}

func (m *machine) usage(t *rapid.T) {
	name := m.drawName(t)
	want := wire.StateText(m.l.State(m.now, m.s.settings, name))
	got, err := m.s.usage(m.now, name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("usage %s (-line +script):\n%s", name, diff)
	}
}
