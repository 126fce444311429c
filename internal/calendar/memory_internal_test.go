package calendar

import (
	"strconv"
	"testing"
)

// TestMemoryIsBounded: a memory that is asked for ever new texts forgets the old ones, and reads them again.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m Memory[int]
	parse := func(text string) (*int, error) {
		n, err := strconv.Atoi(text)
		return &n, err
	}
	for n := range 3 * mostKnown {
		for _, want := range []int{n, n / 2} {
			if got, err := m.Read(strconv.Itoa(want), parse); err != nil || *got != want {
				t.Fatalf("got %v, %v, want %d", got, err, want)
			}
		}
	}
	kept := 0
	m.known.Range(func(any, any) bool { kept++; return true })
	if kept == 0 || kept > mostKnown {
		t.Errorf("it keeps %d texts, want %d at most", kept, mostKnown)
	}
}
