package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ports are taken from below the range that systems give to outgoing
// connections, so that a stopped server finds its port free again. Nodes of a
// cluster have ports so low that this holds for their bus ports too, which are
// 10,000 higher and which no other server uses.
var (
	nodePorts = &portRange{first: 20000, last: 22700}
	ports     = &portRange{first: 22700, last: 30000}
)

// Server is one redis-server process. Call its methods only from the test's own
// goroutine; they end the test when they fail.
type Server struct {
	// Addr is the server's address, host and port. It stays the same over a
	// Restart.
	Addr string

	tb       testing.TB // nil: started by Launch
	args     []string
	conf     string // the text of its configuration file; empty: it has no file
	ports    *portRange
	dir      string
	process  *exec.Cmd // nil while stopped
	paused   bool
	watchdog *watchdog
}

// Launch does what Start does for a program that is not a test: the caller closes the server. If the caller dies first,
// the server ends too.
func Launch(args ...string) (*Server, error) {
	return launch(&Server{args: args, ports: ports})
}

// launch gives a server its directory and its address and starts it.
func launch(s *Server) (*Server, error) {
	var err error
	if s.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	if s.conf != "" {
		err = os.WriteFile(s.confFile(), []byte(s.conf), 0o600)
	}
	for try := 0; try < 10 && (err == nil || errors.Is(err, errPortTaken)); try++ {
		if s.Addr, err = s.ports.addr(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Close())
}

// confFile returns the path of the server's configuration file, if it has one.
func (s *Server) confFile() string { return filepath.Join(s.dir, "server.conf") }

// Options returns go-redis' options for a client of this server: the address, and
// go-redis' defaults.
func (s *Server) Options() *redis.Options { return &redis.Options{Addr: s.Addr} }

// Client returns a client of this server with go-redis' defaults, closed when
// the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Pause stops the process where it is (SIGSTOP): connections stay, the kernel takes
// requests, and no request is answered until Resume.
func (s *Server) Pause() {
	s.helper()
	s.signal(suspend)
	s.paused = true
}

// Resume lets a paused process go on, with the requests that came meanwhile.
func (s *Server) Resume() {
	s.helper()
	s.signal(proceed)
	s.paused = false
}

// Stop kills the process, as a crash would: nothing is written, connections
// break. Restart brings it back. A stopped server stays stopped.
func (s *Server) Stop() {
	s.helper()
	if err := s.kill(); err != nil {
		s.fatal(err)
	}
}

// Restart kills the process, if it runs, and starts it again at the same
// address: without data and without scripts, unless it was started with args
// that made it keep some.
func (s *Server) Restart() {
	s.helper()
	s.Stop()
	if err := s.run(); err != nil {
		s.fatal(err)
	}
}

// revive restarts the process if it is stopped and resumes it if it is paused.
func (s *Server) revive() {
	s.helper()
	switch {
	case s.paused:
		s.Resume()
	case s.process == nil:
		s.Restart()
	}
}

// Close kills the process and removes its directory. Servers of Start and
// Shared are closed without it.
func (s *Server) Close() error {
	return errors.Join(s.kill(), os.RemoveAll(s.dir))
}

// Running reports whether the process is neither stopped nor paused.
func (s *Server) Running() bool { return s.process != nil && !s.paused }

// hostPort returns the host and the port of the server's address.
func (s *Server) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(s.Addr) // cannot fail: freeAddr made the address
	return host, port
}

// ask calls question with a client of the server, until patience ends.
func (s *Server) ask(question func(ctx context.Context, client *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	defer client.Close() //nolint:errcheck // nothing is lost with it
	return question(ctx, client)
}

func (s *Server) signal(sig syscall.Signal) {
	s.helper()
	if s.process == nil {
		s.fatal(fmt.Errorf("redistest: the redis-server at %s is stopped", s.Addr))
	}
	if err := s.process.Process.Signal(sig); err != nil {
		s.fatal(fmt.Errorf("redistest: signal redis-server: %w", err))
	}
}

func (s *Server) helper() {
	if s.tb != nil {
		s.tb.Helper()
	}
}

func (s *Server) fatal(err error) {
	if s.tb == nil {
		panic(err)
	}
	s.tb.Helper()
	s.tb.Fatal(err)
}

var errPortTaken = errors.New("redistest: the port was taken by another process")

// run starts the process at the server's address and waits until it answers.
func (s *Server) run() error {
	path, err := program()
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	host, port := s.hostPort()
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	var own []string
	if s.conf != "" {
		own = append(own, s.confFile())
	}
	own = append(own, "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir)
	s.process = exec.Command(path, append(own, s.args...)...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.process = nil
		return fmt.Errorf("redistest: start %s: %w", path, err)
	}
	s.watchdog, err = watch(s.process.Process.Pid, s.dir)
	if err == nil {
		err = s.awaitAnswer(log.Name())
	}
	if err != nil {
		return errors.Join(err, s.kill())
	}
	return nil
}

// awaitAnswer polls until this very process answers: another process that got the port
// meanwhile may speak Redis too.
func (s *Server) awaitAnswer(log string) error {
	deadline := time.Now().Add(patience)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for ; ; <-poll.C {
		pid, err := askPID(s.Addr, deadline)
		switch {
		case err == nil && pid == s.process.Process.Pid:
			return nil
		case err == nil:
			return errPortTaken
		}
		said, _ := os.ReadFile(log) // the log only adds to an error's text
		switch {
		case bytes.Contains(said, []byte("Failed listening on port")):
			return errPortTaken
		case time.Now().After(deadline):
			return fmt.Errorf("redistest: redis-server did not answer within %s: %w; it said:\n%s", patience, err, said)
		}
	}
}

// askPID asks the server at addr for its process id. It uses no client library,
// which would log every attempt that came too early.
func askPID(addr string, deadline time.Time) (int, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Until(deadline))
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost with it
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return 0, err
	}
	r := bufio.NewReader(conn)
	pong, err := ReadFrame(r)
	if err != nil {
		return 0, err
	}
	info, err := ReadFrame(r)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(info), "process_id:")
	text, _, _ := strings.Cut(rest, "\r\n")
	pid, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("PING: %.100q, INFO: %.100q", pong, info)
	}
	return pid, nil
}

// kill ends the process, if it runs, and waits until it is gone.
func (s *Server) kill() error {
	if s.process == nil {
		return nil
	}
	process := s.process
	s.process, s.paused = nil, false
	s.watchdog.dismiss() // first, so that it never kills another process with the same id
	if err := process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("redistest: kill redis-server: %w", err)
	}
	var exit *exec.ExitError
	if err := process.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("redistest: wait for redis-server: %w", err)
	}
	return nil
}

// watchdog is a process that outlives this one for a moment, to end the server
// of a test binary that panicked, timed out or was killed, and so ran no
// cleanup. It waits for the end of its standard input, which nobody writes.
type watchdog struct {
	process *exec.Cmd
	leash   io.Closer
}

// dismiss ends the watchdog without harm to the process that it watches.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	_ = w.process.Process.Kill()
	_ = w.leash.Close()
	_ = w.process.Wait()
}
