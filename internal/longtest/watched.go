package longtest

import "testing"

// Unwatched skips a test in a build with the race detector, which makes a test five to ten times as slow. Call it in a
// property, which makes its calls from one goroutine, or in one of the longest stories, if a shorter story runs the
// same code with the detector. A run without the detector runs all of them.
func Unwatched(t testing.TB) {
	t.Helper()
	if Watched {
		t.Skip("longtest: runs without the race detector: a shorter test goes through the same code with it")
	}
}
