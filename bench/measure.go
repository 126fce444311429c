package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// server is the Redis of one section, with the means to measure it.
type server struct {
	*redistest.Server
	control *redis.Client
	pid     string
}

func startServer(ctx context.Context) (*server, error) {
	process, err := redistest.Launch("--save", "")
	if err != nil {
		return nil, err
	}
	return watch(ctx, process)
}

// watch returns a server for a process. If that fails, it closes the process.
func watch(ctx context.Context, process *redistest.Server) (*server, error) {
	s := &server{Server: process, control: redis.NewClient(&redis.Options{Addr: process.Addr, PoolSize: 2})}
	info, err := s.control.Info(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.pid, err = field(info, "process_id:"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the server.
func (s *server) Close() error { return errors.Join(s.control.Close(), s.Server.Close()) }

// withServer runs f with a server of its own.
func withServer(ctx context.Context, f func(s *server) error) error {
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// withAwakeServer runs f with a server of its own and a client of it, while every core is awake.
func withAwakeServer(ctx context.Context, f func(s *server, client *redis.Client) error) error {
	stop, err := awake()
	if err != nil {
		return err
	}
	defer stop()
	return withServer(ctx, func(s *server) error {
		client := s.client()
		defer client.Close() //nolint:errcheck // nothing is lost with it
		return f(s, client)
	})
}

// client returns a new client, which the caller closes. Calls end with their contexts, as the
// documents advise.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 64, ContextTimeoutEnabled: true})
}

// cpu returns the server's CPU time so far: the sum over its threads, as /proc reports it. Without a /proc it is the
// time that the server itself reports.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	threads, err := filepath.Glob("/proc/" + s.pid + "/task/*/schedstat")
	if err != nil || len(threads) == 0 {
		info, err := s.control.Info(ctx, "cpu").Result()
		if err != nil {
			return 0, err
		}
		user, err := number(info, "used_cpu_user:")
		system, failed := number(info, "used_cpu_sys:")
		return time.Duration((user + system) * float64(time.Second)), errors.Join(err, failed)
	}
	var all time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread) // nanoseconds on a core, waiting for one, slices
		if err != nil {
			continue // it has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		spent, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", thread, err)
		}
		all += time.Duration(spent)
	}
	return all, nil
}

// spent is what a measured function took.
type spent struct {
	took, cpu, scripts time.Duration // cpu: of the server; scripts: the part of cpu in scripts
	evalshas, commands float64       // commands: those in scripts too
}

// during measures what f takes.
func (s *server) during(ctx context.Context, f func() error) (spent, error) {
	if err := s.control.ConfigResetStat(ctx).Err(); err != nil {
		return spent{}, err
	}
	before, err := s.cpu(ctx)
	if err != nil {
		return spent{}, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return spent{}, err
	}
	is := spent{took: time.Since(began)}
	after, err := s.cpu(ctx)
	if err != nil {
		return spent{}, err
	}
	is.cpu = after - before
	stats, err := s.control.Info(ctx, "commandstats").Result()
	if err != nil {
		return spent{}, err
	}
	err = is.count(stats)
	return is, err
}

// count reads the server's statistics of its commands.
func (is *spent) count(stats string) error {
	for line := range strings.Lines(stats) {
		rest, command := strings.CutPrefix(line, "cmdstat_")
		name, rest, _ := strings.Cut(rest, ":")
		if !command || name == "config|resetstat" || name == "info" {
			continue
		}
		rest = strings.ReplaceAll(rest, ",", "\n")
		calls, err := number(rest, "calls=")
		if err != nil {
			return err
		}
		is.commands += calls
		if name == "evalsha" {
			micros, err := number(rest, "usec=")
			if err != nil {
				return err
			}
			is.evalshas, is.scripts = calls, time.Duration(micros*1000)
		}
	}
	return nil
}

// field returns the text that follows name, up to the line's end.
func field(text, name string) (string, error) {
	_, rest, found := strings.Cut(text, name)
	if !found {
		return "", fmt.Errorf("no %s in %q", name, text)
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.TrimSpace(rest), nil
}

func number(text, name string) (float64, error) {
	value, err := field(text, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(value, 64)
}

// together calls f for 0 to n-1, by as many goroutines as callers says, and returns how long each call took.
func together(n, callers int, f func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	failed := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < n && failed[c] == nil; i += callers {
				began := time.Now()
				failed[c] = f(i)
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	return took, errors.Join(failed...)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[len(sorted)/2] + sorted[(len(sorted)-1)/2]) / 2
}

// p50 returns the median of durations, in µs.
func p50(took []time.Duration) float64 {
	return micros(slices.Sorted(slices.Values(took))[len(took)/2])
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
