package lua_test

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func (m *machine) pause(t *rapid.T) {
	name := m.drawName(t)
	length := rapid.SampledFrom([]int64{0, 0, second, 100 * second}).Draw(t, "for")
	what, value, until := "resume", "", int64(0)
	if length > 0 {
		what, value, until = "pause", fmt.Sprint(length), m.now+length
	}
	before, is := m.l.Pause(m.now, m.s.settings, name, until)
	m.compareSet(t, what, name, value, 0, fmt.Sprint(before), fmt.Sprint(is))
}

func (m *machine) compareSet(t *rapid.T, what, name, value string, lasts int64, before, after string) {
	got, err := m.s.set(m.now, what, name, value, lasts)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(m.l.Next()), before, after}
	if what == "limits" || what == "mode" {
		want[1], got[1] = "", ""
		if value != "" {
			want[2] += fmt.Sprintf("|%d|%d|%s", m.endOf(lasts)%line.Never, m.now, setNote)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("set %s %s %s (-line +script):\n%s", what, name, value, diff)
	}
}

// endOf returns when a setting ends that lasts for a time; 0 lasts for ever.
func (m *machine) endOf(lasts int64) int64 {
	if lasts == 0 {
		return line.Never
	}
	return m.now + lasts
}

// report makes an upstream's report, for a request that was sent now or earlier, or for a granted one, and compares the
// answers.
func (m *machine) report(t *rapid.T) {
	name := m.drawName(t)
	r := line.Report{
		Refused: rapid.Bool().Draw(t, "refused"),
		Wait:    rapid.SampledFrom([]int64{0, 0, 1, second, 90 * second}).Draw(t, "asks to wait"),
		Floor:   rapid.SampledFrom([]int64{1, 100, 500, 999}).Draw(t, "floor"),
		Margin:  rapid.SampledFrom([]int64{0, 0, second}).Draw(t, "margin"),
	}
	r.Started = rapid.SampledFrom([]int64{0, m.now, m.now - second, m.now - 60*second}).Draw(t, "started")
	for range rapid.IntRange(0, 2).Draw(t, "windows told") {
		r.Limits = append(r.Limits, line.ReportedLimit{
			Window: rapid.SampledFrom([]int64{0, second, 6 * second, 7 * second, 59 * second, 60 * second, 3600 * second,
				86_400 * second}).Draw(t, "window"),
			Units:     rapid.SampledFrom([]int64{0, 1, 2, 7, 29, 100, 1 << 53}).Draw(t, "told"),
			Remaining: rapid.SampledFrom([]int64{-1, 0, 1, 5, 1 << 53}).Draw(t, "remaining"),
		})
	}
	before, is, paused := m.l.Report(m.now, m.s.settings, name, r)
	got, err := m.s.report(m.now, name, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(m.l.Next()), fmt.Sprint(before), fmt.Sprint(is), fmt.Sprint(paused)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("report %s %+v (-line +script):\n%s", name, r, diff)
	}
}

func (m *machine) limits(t *rapid.T) {
	name := rapid.SampledFrom([]string{"global:", "tenant:a", "domain:x", "global", "tenant", "domain"}).Draw(t, "of")
	limits := drawLimits(t, "set")
	if len(limits) == 0 {
		limits = nil
	}
	for i := range limits {
		if limits[i].Kind != line.Hours && rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "closed") {
			limits[i].Units, limits[i].Ramp = 0, ""
		}
	}
	lasts := drawLasts(t)
	m.l.SetLimits(m.now, m.s.settings, name, limits, m.endOf(lasts))
	m.compareSet(t, "limits", name, line.LimitsText(limits), lasts, "", line.LimitsText(limits))
}

func (m *machine) mode(t *rapid.T) {
	scope := rapid.SampledFrom([]string{"", "global", "tenant", "domain"}).Draw(t, "of")
	text := rapid.SampledFrom([]string{"", "e", "s", "o"}).Draw(t, "mode")
	mode := line.Mode(0)
	if text != "" {
		mode = line.Mode(text[0])
	}
	lasts := drawLasts(t)
	m.l.SetMode(m.now, m.s.settings, scope, mode, m.endOf(lasts))
	m.compareSet(t, "mode", scope, text, lasts, "", text)
}
