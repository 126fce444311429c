//go:build race

package reliability_test

// raced is set if the race detector is on, which makes a test take ten times as long.
const raced = true
