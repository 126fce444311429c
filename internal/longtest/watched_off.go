//go:build !race

package longtest

// Watched is true if the race detector is on: a test takes five to ten times as long.
const Watched = false
