package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// v3Text is a program for the module of version 3, which this one cannot import beside
// its own: it decides for one job with each line that it reads.
//
//go:embed v3.go.txt
var v3Text []byte

// rowBefore is the row of version 3.
const rowBefore = "version 3, one limit each"

// versionThree builds and starts that program. Its decisions are asked for over a pipe,
// several at once; so its round trips are longer than they are, and its server's CPU is
// what it is.
func versionThree(ctx context.Context, worktree, addr string) (row limiter, end func() error, err error) {
	dir, err := os.MkdirTemp("", "bench-v3-")
	if err != nil {
		return row, nil, err
	}
	clean := func() error { return os.RemoveAll(dir) }
	program, err := buildV3(ctx, worktree, dir)
	if err != nil {
		return row, nil, errors.Join(err, clean())
	}
	process := exec.CommandContext(ctx, program, addr) //nolint:gosec // G204: it has just been built
	process.Stderr = os.Stderr
	to, err := process.StdinPipe()
	if err != nil {
		return row, nil, errors.Join(err, clean())
	}
	from, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		return row, nil, errors.Join(err, clean())
	}
	p := &pipe{to: to, waits: make(map[int]chan error)}
	go p.read(from)
	return limiter{rowBefore, p.decide}, func() error {
		return errors.Join(to.Close(), process.Wait(), clean())
	}, nil
}

// buildV3 makes a module of the program's own, with what version 3 requires.
func buildV3(ctx context.Context, worktree, dir string) (program string, err error) {
	worktree, err = filepath.Abs(worktree)
	if err != nil {
		return "", err
	}
	requires, err := os.ReadFile(filepath.Join(worktree, "go.mod"))
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(worktree, "go.sum"))
	if err != nil {
		return "", err
	}
	const module = "github.com/asynq-throttle/asynq-throttle"
	mod := strings.Replace(string(requires), "module "+module+"\n", "module benchv3\n", 1) +
		fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, worktree)
	for name, text := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums, "main.go": v3Text} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	program = filepath.Join(dir, "benchv3")
	build := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", program, ".") //nolint:gosec // G204: nothing of it is a user's but the worktree
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("version 3 in %s: %w: %s", worktree, err, out)
	}
	return program, nil
}

// pipe is the way to that program and back.
type pipe struct {
	mu    sync.Mutex
	to    io.Writer
	waits map[int]chan error
	err   error // it has ended
}

func (p *pipe) decide(_ context.Context, i int) error {
	answer := make(chan error, 1)
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return p.err
	}
	p.waits[i] = answer
	_, err := fmt.Fprintf(p.to, "%d %s\n", i, tenantOf(i))
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return <-answer
}

// read hands the answers to those who wait: "17" is done, "17 text" an error.
func (p *pipe) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		number, text, failed := strings.Cut(lines.Text(), " ")
		var i int
		if _, err := fmt.Sscan(number, &i); err != nil {
			continue
		}
		p.mu.Lock()
		answer := p.waits[i]
		delete(p.waits, i)
		p.mu.Unlock()
		switch {
		case answer == nil:
		case failed:
			answer <- errors.New(text)
		default:
			answer <- nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(errors.New("version 3's program has ended"), lines.Err())
	for _, answer := range p.waits {
		answer <- p.err
	}
}
