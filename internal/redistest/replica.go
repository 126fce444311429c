package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a redis-server as Start does, as a replica of the primary.
// It returns when the replica has all that the primary had.
func StartReplica(t testing.TB, primary *Server, args ...string) *Server {
	t.Helper()
	replica := Start(t, args...)
	replica.Follow(primary)
	return replica
}

// Follow makes the server a replica of the primary; it may have been one before. The
// server loses its own data. Follow returns when the server has all that the primary had.
func (s *Server) Follow(primary *Server) {
	s.helper()
	if err := s.follow(primary); err != nil {
		s.fatal(err)
	}
}

// Promote makes a replica a primary of its own, with what it has received, by
// REPLICAOF NO ONE. The old primary does not learn of the promotion, and goes on.
func (s *Server) Promote() {
	s.helper()
	err := s.ask(func(ctx context.Context, client *redis.Client) error {
		return client.ReplicaOf(ctx, "NO", "ONE").Err()
	})
	if err != nil {
		s.fatal(fmt.Errorf("redistest: promote %s: %w", s.Addr, err))
	}
}

// AwaitSync waits until the server is a replica of the primary and has all that
// the primary has when it is called.
func (s *Server) AwaitSync(primary *Server) {
	s.helper()
	if err := s.awaitSync(primary); err != nil {
		s.fatal(err)
	}
}

func (s *Server) follow(primary *Server) error {
	// By default a primary waits five seconds for more replicas to come.
	err := primary.ask(func(ctx context.Context, client *redis.Client) error {
		return client.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err()
	})
	if err == nil {
		err = s.ask(func(ctx context.Context, client *redis.Client) error {
			host, port := primary.hostPort()
			return client.ReplicaOf(ctx, host, port).Err()
		})
	}
	if err != nil {
		return fmt.Errorf("redistest: %s does not follow %s: %w", s.Addr, primary.Addr, err)
	}
	return s.awaitSync(primary)
}

func (s *Server) awaitSync(primary *Server) error {
	had, err := primary.replication()
	if err != nil {
		return fmt.Errorf("redistest: what the primary %s has: %w", primary.Addr, err)
	}
	written, err := strconv.ParseInt(had["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("redistest: what the primary %s has: %w", primary.Addr, err)
	}
	_, port := primary.hostPort()
	return await(s.Addr+" in sync with "+primary.Addr, func() error {
		has, err := s.replication()
		if err != nil {
			return err
		}
		received, _ := strconv.ParseInt(has["slave_repl_offset"], 10, 64) // 0 if the server is no replica
		if has["master_port"] != port || has["master_link_status"] != "up" || received < written {
			return fmt.Errorf("%d of %d bytes, the link is %q", received, written, has["master_link_status"])
		}
		gives, err := primary.replication()
		if err == nil && !sendsTo(gives, s) {
			err = fmt.Errorf("%s holds back what it must send", primary.Addr)
		}
		return err
	})
}

// sendsTo reports, by the INFO of a primary, whether it sends its writes to the replica at
// once. A primary does not do so while the replica loads its first data, and for a little longer.
func sendsTo(primary map[string]string, replica *Server) bool {
	_, port := replica.hostPort()
	for name, state := range primary {
		if strings.HasPrefix(name, "slave") && strings.Contains(state, "port="+port+",state=online") {
			return true
		}
	}
	return false
}

// replication returns the section of INFO about replication.
func (s *Server) replication() (map[string]string, error) {
	var text string
	err := s.ask(func(ctx context.Context, client *redis.Client) (err error) {
		text, err = client.Info(ctx, "replication").Result()
		return err
	})
	return fieldsOf(text), err
}

// fieldsOf reads "name:value" line by line.
func fieldsOf(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
