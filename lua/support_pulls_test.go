package lua_test

import (
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func (m *machine) pull(t *rapid.T) {
	if next := m.l.Next(); next > m.now && next < line.Never/2 && rapid.Bool().Draw(t, "when due") {
		m.now = next
	}
	bookings, looks := 50, 200
	if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "bounded") {
		bookings, looks = 2, 3
	}
	m.pullOnce(t, bookings, looks)
}

func (m *machine) pullOnce(t *rapid.T, bookings, looks int) {
	brings, pull := rapid.SampledFrom([]int{1, 1, 0}).Draw(t, "brings"), m.l.Pull
	if brings == 0 {
		pull = m.l.PullOnly
	}
	got, ends, err := m.s.pull(m.now, bookings, looks, brings)
	if err != nil {
		t.Fatal(err)
	}
	m.l.Ends = ends
	want := pull(m.now, m.s.settings, bookings, looks)
	if diff := cmp.Diff(pulledText(want), got); diff != "" {
		t.Fatalf("pull (-line +script):\n%s", diff)
	}
	for _, told := range want.Booked {
		m.slots[told.ID] = told.Slot
	}
}

// pulls lets jobs arrive for a while, and pulls the line when it is due.
func (m *machine) pulls(t *rapid.T) {
	for range rapid.IntRange(1, 30).Draw(t, "times") {
		if rapid.Bool().Draw(t, "comes") {
			m.ask(t, []line.Job{m.drawJob(t)})
		}
		if next := m.l.Next(); next < line.Never/2 {
			m.now = max(m.now, next)
		}
		m.pullOnce(t, 50, 200)
	}
}
