package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// writePage writes a page with the printed figures, the machine, the versions and the date, and the command that makes
// it again.
func writePage(ctx context.Context, file string, full bool, printed string) error {
	command := "`make benchmarks`"
	if !full {
		command = "`cd bench && go run . -write ../docs/benchmarks.md`, the short form of `make benchmarks`,"
	}
	text := fmt.Sprintf(pageText, command, time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH,
		runtime.Version(), redisVersion(ctx), strings.TrimSpace(printed))
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // G306: it is for everybody to read
}

const pageText = "# Benchmarks\n\n" +
	"Made by %s on %s: %s, %d cores, %s/%s, %s, %s.\n" +
	"A ratio compares rows that ran next to each other in the same run. To compare with another machine, read the\n" +
	"ratios.\n\n" +
	"A line that begins with MISSED names a goal of this project that is not reached.\n\n" +
	"```\n%s\n```\n"

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.+)$`)

// processor returns the processor's name, by Linux.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if name := modelName.FindSubmatch(text); err == nil && name != nil {
		return string(name[1])
	}
	return "a processor of unknown make"
}

// redisVersion returns the version of the redis-server in PATH.
func redisVersion(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	for word := range strings.FieldsSeq(string(text)) {
		if version, is := strings.CutPrefix(word, "v="); is && err == nil {
			return "Redis " + version
		}
	}
	return "Redis of unknown version"
}
