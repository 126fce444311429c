package metrics

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBusyIsInOrder(t *testing.T) {
	t.Parallel()
	var b busy
	b.add("few", 1, noon)
	b.add("many", 2, noon)
	b.add("more", 1, noon)
	b.add("many", 2, noon)
	b.add("more", 2, noon)
	if got, want := b.top(noon), []string{"many", "more", "few"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 100 {
		b.add(strconv.Itoa(i), 10, noon)
	}
	if got := b.top(noon); len(got) != mostBusy {
		t.Errorf("got %d keys, want %d", len(got), mostBusy)
	}
}

// TestBusyKeepsTheHeavy: with more keys than are counted, a key with more than its part of all
// units is still found.
func TestBusyKeepsTheHeavy(t *testing.T) {
	t.Parallel()
	var b busy
	const others = 20 * mostCounted
	for i := range others {
		b.add(strconv.Itoa(i), 1+int64(i%3), noon)
		if i%50 == 0 {
			b.add("heavy", 5, noon) // 5 of some 105, far above a thousandth
		}
		if len(b.now) > mostCounted {
			t.Fatalf("%d keys are counted", len(b.now))
		}
	}
	if got := b.top(noon); got[0] != "heavy" {
		t.Errorf("got %q first", got[0])
	}
}

// TestBusyForgets: a key counts in its minute and the next.
func TestBusyForgets(t *testing.T) {
	t.Parallel()
	var b busy
	b.add("early", 100, noon)
	b.add("late", 1, noon.Add(turnAfter))
	if got, want := b.top(noon.Add(turnAfter)), []string{"early", "late"}; !slices.Equal(got, want) {
		t.Errorf("in the next minute: got %q, want %q", got, want)
	}
	if got, want := b.top(noon.Add(2*turnAfter)), []string{"late"}; !slices.Equal(got, want) {
		t.Errorf("in the one after: got %q, want %q", got, want)
	}
	if got := b.top(noon.Add(10 * turnAfter)); len(got) != 0 {
		t.Errorf("much later: got %q", got)
	}
}
