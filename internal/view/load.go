package view

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
)

// Load is how busy the throttle's Redis server is. A field is zero if INFO lacks it or the user may
// not run INFO.
type Load struct {
	Version string `json:"version,omitempty"`
	// Over is the time over which the load was measured: since the last reading, else a short time.
	Over time.Duration `json:"over_ns"`
	// CPU is the share of one core that Redis' main thread used in this time.
	CPU float64 `json:"cpu"`
	// RoundTrip is the median of several round trips.
	RoundTrip time.Duration `json:"round_trip_ns"`
	// Commands is how many commands the server ran per second, and Script the mean time of a script
	// call. Both count all programs, since Redis counts all scripts together.
	Commands int64         `json:"commands_per_second"`
	Script   time.Duration `json:"script_ns"`
	Memory   string        `json:"memory,omitempty"`
	// Verdict sums the load up in a word: idle, busy, bottleneck or unknown.
	Verdict string `json:"verdict"`
}

// The shortest times over which the load is measured.
const (
	ShortLoad = 50 * time.Millisecond
	LongLoad  = time.Second
)

const pings = 5

// Sample is the reply of INFO at an instant. The zero value has no reply.
type Sample struct {
	at     time.Time // by the local clock
	fields map[string]string
}

// oldSample is the age beyond which a sample is not measured from.
const oldSample = time.Minute

// LoadSince measures the load since an earlier sample, and returns the next sample. Without a
// usable sample (none, an old one or one of another server), it measures for the duration long.
func LoadSince(ctx context.Context, th *inspect.Inspector, before Sample, long time.Duration) (Load, Sample) {
	l := Load{Verdict: "unknown"}
	client, is := th.Client().(redis.Cmdable)
	if cluster, clustered := th.Client().(*redis.ClusterClient); clustered {
		node, err := cluster.MasterForKey(ctx, "thr:{"+th.Name()+"}:processes")
		client, is = node, err == nil
	}
	if !is {
		return l, Sample{}
	}
	after := sampleOf(ctx, client)
	l.RoundTrip = roundTrip(ctx, client)
	if !before.reaches(after) {
		before = after
		select {
		case <-time.After(long - time.Since(before.at)):
		case <-ctx.Done():
			return l, before
		}
		after = sampleOf(ctx, client)
	}
	l.between(before, after)
	return l, after
}

// reaches reports whether the load can be measured from a sample to a later one.
func (s Sample) reaches(after Sample) bool {
	took := after.at.Sub(s.at)
	return s.fields["run_id"] != "" && s.fields["run_id"] == after.fields["run_id"] && took >= ShortLoad &&
		took <= oldSample
}

// between fills in the load between two samples.
func (l *Load) between(before, after Sample) {
	l.Over = after.at.Sub(before.at)
	l.Version, l.Memory = after.fields["redis_version"], after.fields["used_memory_human"]
	grown := func(name string) int64 { return number(after.fields[name]) - number(before.fields[name]) }
	l.Commands = int64(float64(grown("total_commands_processed")) / l.Over.Seconds())
	if calls := stat(after, "calls") - stat(before, "calls"); calls > 0 {
		l.Script = time.Duration(stat(after, "usec")-stat(before, "usec")) * time.Microsecond / time.Duration(calls)
	}
	if used := cpu(after.fields); used > 0 {
		l.CPU = (used - cpu(before.fields)) / l.Over.Seconds()
		l.Verdict = verdict(l.CPU)
	}
}

// stat returns a number of the scripts' "calls=…,usec=…,usec_per_call=…".
func stat(s Sample, name string) int64 {
	for part := range strings.SplitSeq(s.fields["cmdstat_evalsha"], ",") {
		if value, is := strings.CutPrefix(part, name+"="); is {
			return number(value)
		}
	}
	return 0
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

// sampleOf reads INFO as fields; none if the user may not run it.
func sampleOf(ctx context.Context, client redis.Cmdable) Sample {
	fields := make(map[string]string)
	text := client.Info(ctx, "everything").Val()
	for line := range strings.Lines(text) {
		if name, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			fields[name] = value
		}
	}
	return Sample{time.Now(), fields}
}

// cpu returns the seconds of processor time that the main thread has used, or all threads if Redis
// does not report that.
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
