package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// result is what a run has printed.
type result struct {
	status    int
	out, errs string
}

// asked runs the command on a Redis.
func asked(t *testing.T, addr string, args ...string) result {
	t.Helper()
	return answered(t, addr, "", false, args...)
}

// answered runs the command with somebody at a terminal, if there is, who types.
func answered(t *testing.T, addr, typed string, terminal bool, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{out: &out, errs: &errs, in: strings.NewReader(typed), asks: terminal, colours: terminal}
	status := p.run(context.WithoutCancel(t.Context()), append([]string{"-u", "redis://" + addr}, args...))
	return result{status, out.String(), errs.String()}
}
