//go:build race

package worker_test

// raced is true if the race detector is on, which makes a test take ten times as long.
const raced = true
