package line_test

import (
	"slices"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

func TestLimitText(t *testing.T) {
	t.Parallel()
	limits := []line.Limit{
		{Units: 3, Span: line.Lease(30_000_000), Precision: 30_000},
		{Units: -1, Span: line.Window(60_000_000), Precision: 1},
		{Units: 200, Span: line.Span{Kind: line.Quota, Length: 86_400_000_000, Calendar: "day@UTC"}, Precision: 1,
			Ramp: "50&200:739938:1:0"},
	}
	text := line.LimitsText(limits)
	if want := "3/r30000000/30000,-1/w60000000/1,50&200:739938:1:0/z86400000000day@UTC/1"; text != want {
		t.Errorf("written as %q, want %q", text, want)
	}
	if read, err := line.ParseLimits(text); err != nil || !slices.Equal(read, limits) {
		t.Errorf("read as %v, %v", read, err)
	}
	if read, err := line.ParseLimits(""); read != nil || err != nil {
		t.Errorf("an empty text is read as %v, %v", read, err)
	}
	for _, wrong := range []string{"1", "1/w5", "1/w5/1/1", "/w5/1", "1/w/1", "1/5/1", "1/x5/1", "1/w0/1", "1/w-5/1",
		"1/w5/0", "-2/w5/1", "1/w9007199254740992/1", "1/w5/1,",
		"5&9:1:1:0/w5/1", "5&9:1:1/z86400000000day@UTC/1", "5&9:1:0:0/z86400000000day@UTC/1",
		"5&9:0:1:0/z86400000000day@UTC/1",
		"9&5:1:1:0/z86400000000day@UTC/1", "&9:1:1:0/z86400000000day@UTC/1", "0&9:1:1:0/z86400000000day@UTC/1",
		"5&9:1:1:-1/z86400000000day@UTC/1", "5&09:1:1:0/z86400000000day@UTC/1"} {
		if limits, err := line.ParseLimits(wrong); err == nil {
			t.Errorf("%q is read as %v", wrong, limits)
		}
	}
}

func TestSpanOrder(t *testing.T) {
	t.Parallel()
	want := []line.Span{line.Lease(5), line.Lease(7), line.Window(1), line.Window(20)}
	got := []line.Span{want[3], want[1], want[2], want[0]}
	slices.SortFunc(got, line.Span.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("in the order %v, want %v", got, want)
	}
}
