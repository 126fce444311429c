package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels = 3
	quorum    = 2
)

// Sentinel is a primary and a replica that three sentinels watch. The sentinels take a
// primary that has not answered for a second for dead. Call its methods only from the test's
// own goroutine; they end the test when they fail.
type Sentinel struct {
	// MasterName is what the sentinels call the primary.
	MasterName string
	// Servers are the two servers that were started as primary and replica. Primary
	// returns the one that is the primary now.
	Servers [2]*Server

	tb      testing.TB
	watches []*Server
}

// StartSentinel starts servers and sentinels for the test and stops them when the test ends.
// It returns when the sentinels know each other and the replica, after about two seconds. The
// args are for the primary and the replica, as for Start.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	primary := Start(t, args...)
	s := &Sentinel{MasterName: "primary", tb: t, Servers: [2]*Server{primary, StartReplica(t, primary, args...)}}
	host, port := primary.hostPort()
	conf := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s %[4]d
sentinel down-after-milliseconds %[1]s 1000
sentinel failover-timeout %[1]s 3000
`, s.MasterName, host, port, quorum)
	for range sentinels {
		watch, err := launch(&Server{args: []string{"--sentinel"}, conf: conf, ports: ports})
		if err != nil {
			t.Fatal(err)
		}
		stopWith(t, watch)
		if err := hasten(watch); err != nil {
			t.Fatal(err)
		}
		s.watches = append(s.watches, watch)
	}
	s.AwaitWhole()
	return s
}

// hasten makes a sentinel check and announce more often than its default, once in one to ten
// seconds: otherwise it would take a new primary for dead before it has asked it. After the
// machine stood still, the sentinel also mistrusts its clock for a shorter time.
func hasten(watch *Server) error {
	err := watch.ask(func(ctx context.Context, client *redis.Client) error {
		return client.Do(ctx, "SENTINEL", "DEBUG", "PING-PERIOD", "300", "INFO-PERIOD", "500",
			"PUBLISH-PERIOD", "200", "TILT-PERIOD", "1000").Err()
	})
	if err != nil {
		return fmt.Errorf("redistest: only sentinels from Redis 7 on can be hastened: %w", err)
	}
	return nil
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.watches) }

// Options returns go-redis' options for a client that finds the primary through the
// sentinels, with go-redis' defaults.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()}
}

// Client returns a client with these options, closed when the test ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Sentinels returns the sentinels' own processes, for a test that stops one.
func (s *Sentinel) Sentinels() []*Server { return s.watches }

// Primary returns the server that the first running sentinel names now.
func (s *Sentinel) Primary() *Server {
	s.tb.Helper()
	for _, watch := range s.watches {
		if !watch.Running() {
			continue
		}
		primary, err := s.named(watch)
		if err != nil {
			s.tb.Fatal(err)
		}
		return primary
	}
	s.tb.Fatal("redistest: no sentinel runs")
	return nil
}

// KillPrimary kills the primary, as a crash would (SIGKILL), and returns it. AwaitPrimary
// waits for the next primary.
func (s *Sentinel) KillPrimary() *Server {
	s.tb.Helper()
	primary := s.Primary()
	primary.Stop()
	return primary
}

// AwaitPrimary waits until all running sentinels name another primary than the old one,
// and the new primary takes writes. It returns the new primary.
func (s *Sentinel) AwaitPrimary(old *Server) *Server {
	s.tb.Helper()
	var primary *Server
	err := await("another primary than "+old.Addr, func() error {
		for _, watch := range s.watches {
			if !watch.Running() {
				continue
			}
			var err error
			if primary, err = s.named(watch); err != nil {
				return err
			}
			if primary == old {
				return fmt.Errorf("%s still names it", watch.Addr)
			}
		}
		role, err := primary.replication()
		if err == nil && role["role"] != "master" {
			err = fmt.Errorf("%s is a %s still", primary.Addr, role["role"])
		}
		return err
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	return primary
}

// Heal restarts servers and sentinels that were stopped, without their data, resumes those that were paused, and
// waits until both servers are in sync again: the primary stays the primary, and the other server follows it.
func (s *Sentinel) Heal() {
	s.tb.Helper()
	primary := s.Primary()
	for _, watch := range s.watches {
		watch.revive()
	}
	for _, server := range s.Servers {
		server.revive()
		if server != primary { // the sentinels would take up to twenty seconds to do this
			server.Follow(primary)
		}
	}
	s.AwaitWhole()
}

// AwaitWhole waits until each sentinel sees the other two, and a primary with a replica in
// sync, and takes none of them for dead.
func (s *Sentinel) AwaitWhole() {
	s.tb.Helper()
	err := await("sentinels that see all", func() error {
		for _, watch := range s.watches {
			if err := s.whole(watch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	primary := s.Primary()
	for _, server := range s.Servers {
		if server != primary {
			server.AwaitSync(primary)
		}
	}
}

// named returns the server that a sentinel names as the primary.
func (s *Sentinel) named(watch *Server) (*Server, error) {
	var named string
	err := s.ask(watch, func(ctx context.Context, client *redis.SentinelClient) error {
		addr, err := client.GetMasterAddrByName(ctx, s.MasterName).Result()
		if err == nil && len(addr) == 2 {
			named = net.JoinHostPort(addr[0], addr[1])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("redistest: sentinel %s: %w", watch.Addr, err)
	}
	for _, server := range s.Servers {
		if server.Addr == named {
			return server, nil
		}
	}
	return nil, fmt.Errorf("redistest: sentinel %s names %q", watch.Addr, named)
}

// whole returns an error that says what a sentinel does not see.
func (s *Sentinel) whole(watch *Server) error {
	return s.ask(watch, func(ctx context.Context, client *redis.SentinelClient) error {
		primary, err := client.Master(ctx, s.MasterName).Result()
		if err != nil {
			return err
		}
		if primary["flags"] != "master" || primary["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("%s: the primary is %q, %s sentinels", watch.Addr, primary["flags"],
				primary["num-other-sentinels"])
		}
		replicas, err := client.Replicas(ctx, s.MasterName).Result()
		if err != nil {
			return err
		}
		if len(replicas) != 1 || replicas[0]["flags"] != "slave" {
			return fmt.Errorf("%s: replicas %v", watch.Addr, replicas)
		}
		return nil
	})
}

func (s *Sentinel) ask(watch *Server, question func(ctx context.Context, client *redis.SentinelClient) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := redis.NewSentinelClient(&redis.Options{Addr: watch.Addr, ContextTimeoutEnabled: true})
	return errors.Join(question(ctx, client), client.Close())
}
