package throttle_test

import (
	"strings"
	"testing"
)

// TestGlossaryIsShort: a page of words helps as long as one can read it.
func TestGlossaryIsShort(t *testing.T) {
	t.Parallel()
	const most = 30
	if words := strings.Count(read(t, "docs/glossary.md"), "\n| **"); words > most || words == 0 {
		t.Errorf("docs/glossary.md has %d words, want up to %d", words, most)
	}
}
