package lua_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func (m *machine) settle(t *rapid.T) {
	if len(m.grants) == 0 {
		t.Skip("nothing granted")
	}
	g := rapid.SampledFrom(m.grants[max(0, len(m.grants)-8):]).Draw(t, "which")
	// The mark of a settlement expires by the server's clock, which the test does not move: it has a minute at least.
	const within = 3600 * second
	if left := g.Start + within - m.now; left >= 0 && left < 60*second {
		t.Skip("its mark would expire too soon")
	}
	rebook := rapid.SampledFrom([]bool{false, false, true}).Draw(t, "rebook")
	actual := make([]int64, len(g.Costs))
	for i := range actual {
		if !rebook {
			actual[i] = rapid.SampledFrom([]int64{0, 1, 3, 20}).Draw(t, "actual")
		}
	}
	flow, _, _ := strings.Cut(g.Lane, "|")
	share := map[string]int64{"a": 1, "b": 1, "c": 3}[flow[:1]]
	want := m.l.Settle(m.now, m.s.settings, g, actual, within, rebook)
	got, err := m.s.settle(m.now, g, actual, within, share, rebook)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(m.l.Next()), map[bool]string{true: "1", false: "0"}[want]}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("settle %+v (-line +script):\n%s", g, diff)
	}
	if want && rebook {
		m.ids = append(m.ids, g.ID)
		m.jobs[g.ID] = line.Job{ID: g.ID, Lane: g.Lane, Costs: g.Costs, Latest: line.Never, Share: share}
		m.slots[g.ID] = g.Start
	}
}

// done ends granted jobs, some of them again.
func (m *machine) done(t *rapid.T) {
	cooldowns := map[string]int64{}
	for _, scope := range []string{"tenant", "domain"} {
		if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "cools down") {
			cooldowns[scope] = rapid.SampledFrom([]int64{1, second / 3, 3 * second, 100 * second}).Draw(t, "for")
		}
	}
	grants := m.some(t)
	want := m.l.Done(m.now, m.s.settings, grants, cooldowns)
	if rapid.Bool().Draw(t, "and pulls") {
		m.compareHandOver(t, grants, want, cooldowns)
		return
	}
	got, err := m.s.running(m.now, false, grants, cooldowns)
	m.compareRunning(t, "done", want, got, err)
}

// compareHandOver gives places back and pulls the line in one call, and compares the answers.
func (m *machine) compareHandOver(t *rapid.T, grants []line.Grant, held []bool,
	cooldowns map[string]int64) {
	got, ends, err := m.s.pull(m.now, 50, 200, 1, ended(grants, cooldowns)...)
	if err != nil {
		t.Fatal(err)
	}
	m.l.Ends = ends
	want := m.l.Pull(m.now, m.s.settings, 50, 200)
	texts := pulledText(want)
	for i, is := range held {
		texts = slices.Insert(texts, 3+i, map[bool]string{true: "1", false: "0"}[is])
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("done and pull (-line +script):\n%s", diff)
	}
	for _, told := range want.Booked {
		m.slots[told.ID] = told.Slot
	}
}

func (m *machine) renew(t *rapid.T) {
	grants := m.some(t)
	want := m.l.Renew(m.now, m.s.settings, grants)
	got, err := m.s.running(m.now, true, grants, nil)
	m.compareRunning(t, "renew", want, got, err)
}

func (m *machine) compareRunning(t *rapid.T, what string, want []bool, got []string, err error) {
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(m.l.Next())}
	for _, held := range want {
		texts = append(texts, map[bool]string{true: "1", false: "0"}[held])
	}
	if diff := cmp.Diff(texts, got); diff != "" {
		t.Fatalf("%s (-line +script):\n%s", what, diff)
	}
}

// some draws some of the last grants.
func (m *machine) some(t *rapid.T) []line.Grant {
	if len(m.grants) == 0 {
		t.Skip("nothing granted")
	}
	last := m.grants[max(0, len(m.grants)-12):]
	of := rapid.SliceOfN(rapid.IntRange(0, len(last)-1), 1, 5).Draw(t, "which")
	grants := make([]line.Grant, len(of))
	for i, n := range of {
		grants[i] = last[n]
	}
	return grants
}
