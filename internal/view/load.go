package view

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Load is how busy the server is that has the throttle's keys. What INFO does not tell, or
// may not be read, is zero.
type Load struct {
	Version string `json:"version,omitempty"`
	// CPU is what part of one core Redis' main thread has used, in the measured time.
	CPU float64 `json:"cpu"`
	// RoundTrip is the median of some.
	RoundTrip time.Duration `json:"round_trip_ns"`
	// Commands a second, and the mean time of a call of a script since Redis began.
	Commands int64         `json:"commands_per_second"`
	Script   time.Duration `json:"script_ns"`
	Memory   string        `json:"memory,omitempty"`
	// Verdict says in a word what that means: idle, busy, bottleneck or unknown.
	Verdict string `json:"verdict"`
}

const (
	loadMeasured = 50 * time.Millisecond
	pings        = 5
)

// LoadOf measures it, which takes 50 ms.
func LoadOf(ctx context.Context, th *throttle.Throttle) Load {
	client, is := th.Client().(redis.Cmdable)
	if cluster, clustered := th.Client().(*redis.ClusterClient); clustered {
		node, err := cluster.MasterForKey(ctx, "thr:{"+th.Name()+"}:processes")
		client, is = node, err == nil
	}
	if !is {
		return Load{Verdict: "unknown"}
	}
	l := Load{Verdict: "unknown"}
	before, began := infoOf(ctx, client), time.Now()
	l.RoundTrip = roundTrip(ctx, client)
	select {
	case <-time.After(loadMeasured - time.Since(began)):
	case <-ctx.Done():
		return l
	}
	after, took := infoOf(ctx, client), time.Since(began)
	l.Version, l.Memory = after["redis_version"], after["used_memory_human"]
	l.Commands = number(after["instantaneous_ops_per_sec"])
	l.Script = microseconds(after["cmdstat_evalsha"])
	used := cpu(after) - cpu(before)
	if cpu(after) > 0 {
		l.CPU = used / took.Seconds()
		l.Verdict = verdict(l.CPU)
	}
	return l
}

func verdict(cpu float64) string {
	switch {
	case cpu > 0.8:
		return "bottleneck"
	case cpu > 0.4:
		return "busy"
	}
	return "idle"
}

// infoOf reads INFO as fields; none if it may not be read.
func infoOf(ctx context.Context, client redis.Cmdable) map[string]string {
	fields := make(map[string]string)
	text := client.Info(ctx, "everything").Val()
	for line := range strings.Lines(text) {
		if name, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			fields[name] = value
		}
	}
	return fields
}

// cpu is what the main thread has used, where Redis tells that, else all of it, in seconds.
func cpu(info map[string]string) float64 {
	of := func(name string) float64 {
		seconds, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			return 0
		}
		return seconds
	}
	if main := of("used_cpu_user_main_thread") + of("used_cpu_sys_main_thread"); main > 0 {
		return main
	}
	return of("used_cpu_user") + of("used_cpu_sys")
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// microseconds reads usec_per_call of "calls=…,usec=…,usec_per_call=…".
func microseconds(stat string) time.Duration {
	_, rest, _ := strings.Cut(stat, "usec_per_call=")
	text, _, _ := strings.Cut(rest, ",")
	us, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us * float64(time.Microsecond))
}

func roundTrip(ctx context.Context, client redis.Cmdable) time.Duration {
	all := make([]time.Duration, 0, pings)
	for range pings {
		began := time.Now()
		if client.Ping(ctx).Err() != nil {
			return 0
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[pings/2]
}
