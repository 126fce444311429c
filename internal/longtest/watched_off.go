//go:build !race

package longtest

// Watched tells that the race detector is on: a test takes five to ten times as long.
const Watched = false
