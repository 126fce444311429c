package reliability_test

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// events returns the faults and the changes of a soak, in order. Each is over before the next begins, except for the
// changes that end by themselves.
func (s *soak) events() []func() {
	mail, quick := s.loads[0].name, s.loads[1].name
	shape := func(units ...int64) []throttle.Limit {
		return []throttle.Limit{throttle.Per(units[0], 2*time.Second), throttle.PerMinute(units[1])}
	}
	events := []func(){
		s.fault("network cut", s.proxy.Refuse, s.proxy.Accept),
		s.limits("limits lowered until a time", mail, "tenant", "t1", shape(4, 100)),
		s.fault("network half-open", s.proxy.Stall, s.proxy.Unstall),
		s.mode("shadow until a time", mail, "tenant", throttle.Shadow),
		s.fault("replies lost", s.loseReplies, nil),
		s.limits("limits raised until a time", mail, "tenant", "t2", shape(16, 400)),
		s.fault("network slow", func() { s.proxy.Delay(100 * time.Millisecond) }, func() { s.proxy.Delay(0) }),
		s.pause("key paused until a time", mail, "tenant", "t3"),
		s.fault("SCRIPT FLUSH", func() { must(s.t, s.direct.ScriptFlush(s.t.Context()).Err()) }, nil),
		s.limits("limits of a scope lowered until a time", mail, "list", "",
			[]throttle.Limit{throttle.Per(50, 10*time.Second)}),
		s.fault("connections of the throttles' Redis killed", func() { s.killConnections(s.server.Addr) }, nil),
		s.mode("off until a time", mail, "provider", throttle.Off),
		s.fault("connections of asynq's Redis killed", func() { s.killConnections(s.queue.Addr) }, nil),
		s.resumed("all paused, and resumed", mail, throttle.Global, ""),
		s.fault("Redis stopped by SIGSTOP", s.server.Pause, s.server.Resume),
		s.limits("limits beside an advance lowered until a time", quick, "tenant", "t1",
			[]throttle.Limit{throttle.Per(100, 10*time.Minute)}),
		s.fault("clock set back by 3 s", func() { s.clock.offset.Add(-int64(3 * time.Second)) }, nil),
		s.reset("limits lowered, and reset", mail, "tenant", "t0", shape(3, 100)),
	}
	if s.kills() {
		events = append(events, s.kill)
	}
	return events
}

// fault returns an event that strikes, lasts for two seconds if it has an end, and ends.
func (s *soak) fault(what string, begin, end func()) func() {
	return func() {
		begin()
		if end != nil {
			s.wait(s.t.Context(), s.lasting(2*time.Second))
			end()
		}
		s.done[what]++
	}
}

func (s *soak) loseReplies() {
	for range 5 {
		s.proxy.DropReply("evalsha", 1+s.random.IntN(10))
	}
}

// killConnections makes a server close the connections of all its clients.
func (s *soak) killConnections(addr string) {
	if addr == s.queue.Addr {
		s.struck = append(s.struck, time.Now())
	}
	client := redis.NewClient(soakOptions(addr)) // a cleanup of the test would keep it to the end
	must(s.t, client.Do(s.t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	must(s.t, client.Close())
}

// kill kills the process and starts another.
func (s *soak) kill() {
	s.child.kill()
	now := time.Now()
	s.killed[s.settings.Process] = now
	s.struck = append(s.struck, now)
	s.startChild()
	s.done["process killed with kill -9"]++
}

// span returns the time of a call: its beginning and now.
func span(from time.Time) [2]time.Time { return [2]time.Time{from, time.Now()} }

// change calls a function that changes a setting until an instant, and notes the change.
func (s *soak) change(what string, c change, lasts time.Duration, call func(until time.Time) error) {
	from := time.Now()
	must(s.t, call(from.Add(lasts)))
	c.from = span(from)
	c.to = [2]time.Time{from.Add(lasts), c.from[1].Add(lasts)}
	s.changes = append(s.changes, c)
	s.done[what]++
}

func (s *soak) limits(what, name, scope, key string, limits []throttle.Limit) func() {
	return func() {
		s.change(what, change{throttle: name, scope: scope, key: key, limits: limits}, s.lasting(10*time.Second),
			func(until time.Time) error {
				return s.inspectors[name].SetLimits(s.t.Context(), scope, key, limits, inspect.Until(until),
					inspect.Why(what))
			})
	}
}

func (s *soak) mode(what, name, scope string, mode throttle.Mode) func() {
	return func() {
		s.change(what, change{throttle: name, scope: scope, mode: mode}, s.lasting(5*time.Second),
			func(until time.Time) error {
				return s.inspectors[name].SetMode(s.t.Context(), scope, mode, inspect.Until(until), inspect.Why(what))
			})
	}
}

func (s *soak) pause(what, name, scope, key string) func() {
	return func() {
		s.change(what, change{throttle: name, scope: scope, key: key, paused: true}, s.lasting(5*time.Second),
			func(until time.Time) error {
				_, err := s.inspectors[name].Pause(s.t.Context(), scope, key, until, inspect.Why(what))
				return err
			})
	}
}

// resumed returns an event that pauses a scope key and opens it before the pause ends.
func (s *soak) resumed(what, name, scope, key string) func() {
	return func() {
		s.pause(what, name, scope, key)()
		s.wait(s.t.Context(), s.lasting(5*time.Second)/2)
		from := time.Now()
		_, err := s.inspectors[name].Resume(s.t.Context(), scope, key)
		must(s.t, err)
		s.changes[len(s.changes)-1].to = span(from)
	}
}

// reset returns an event that sets limits and takes them back.
func (s *soak) reset(what, name, scope, key string, limits []throttle.Limit) func() {
	return func() {
		s.limits(what, name, scope, key, limits)()
		s.wait(s.t.Context(), s.lasting(10*time.Second)/2)
		from := time.Now()
		must(s.t, s.inspectors[name].ResetLimits(s.t.Context(), scope, key))
		s.changes[len(s.changes)-1].to = span(from)
	}
}
