// Package longtest says how large a test is: small, so that all tests together take a minute or two, or in full, with
// LONG=1 in the environment, which `make long` sets. Each promise is tested in both. If only the full size shows
// something, the place that leaves it out says so.
package longtest

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// Variable is the environment variable that makes tests long. Empty and 0 do not.
const Variable = "LONG"

// Full reports whether tests run in full.
func Full() bool {
	value := os.Getenv(Variable)
	return value != "" && value != "0"
}

// Of returns a test's size or bound: small by default, full if tests run in full. By default a test allows a tenth more
// than is usual, since the order of goroutines differs from run to run.
func Of[T any](small, full T) T {
	if Full() {
		return full
	}
	return small
}

// Only skips a test unless tests run in full. The reason says what runs by default in its
// place.
func Only(t testing.TB, reason string) {
	t.Helper()
	if !Full() {
		t.Skip("longtest: runs in make long only: " + reason)
	}
}

// Default changes the default of a test flag, such as how many tests run at once if they wait most of the time. Call it
// in TestMain, before m.Run; a flag on the command line wins.
func Default(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

// Properties sets how much the properties of a package draw. By default they draw few inputs, and the same ones in each
// run: nobody's first run fails for a bug that is as old as the code. In full they draw many, others each time. Call it
// in TestMain of a package that uses rapid, before m.Run; -rapid.checks and -rapid.seed on the command line win.
func Properties() {
	Default("rapid.checks", Of("25", "100"))
	Default("rapid.seed", Of("1", "0"))
}

// CollectRarely makes the garbage collector run rarely, for tests with miniredis. Most of what they allocate is the
// Lua state that miniredis makes for each call of a script. From a gigabyte on, the collector runs as often as needed.
func CollectRarely() {
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
}
