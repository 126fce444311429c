package simulation_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
)

// exchange is the world's Redis: one connection behind all clients. It carries one command after the other, so the
// order here is the order in which Redis executed them.
type exchange struct {
	mu   sync.Mutex
	conn net.Conn
	from *bufio.Reader
}

func newExchange(conn net.Conn) *exchange { return &exchange{conn: conn, from: bufio.NewReader(conn)} }

// do sends one command and returns its reply. The caller holds mu.
func (x *exchange) do(request []byte) ([]byte, error) {
	if _, err := x.conn.Write(request); err != nil {
		return nil, err
	}
	return redistest.ReadFrame(x.from)
}

var errCut = errors.New("simulation: the wire is cut")

// bridge is one connection of a client. A command is answered within Write; a goroutine in
// Read waits on a channel, so that virtual time goes on.
type bridge struct {
	wire *wire

	mu         sync.Mutex
	half       []byte // the first part of a command
	replies    bytes.Buffer
	comes      time.Time // when the last reply reaches the process
	lost       bool      // the peer has hung up
	subscribed bool
	deadline   time.Time

	news   chan struct{} // says that a field above has changed
	closed chan struct{}
	once   sync.Once
}

func newBridge(w *wire) *bridge {
	return &bridge{wire: w, news: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Write implements net.Conn.
func (b *bridge) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.half = append(b.half, p...)
	from := bufio.NewReader(bytes.NewReader(b.half))
	var requests [][]byte
	for {
		request, err := redistest.ReadFrame(from)
		if err != nil {
			break // the rest of the command comes with the next Write
		}
		requests = append(requests, request)
		b.half = b.half[len(request):]
	}
	b.mu.Unlock()
	if len(requests) == 1 && b.chat(command(requests[0])) {
		return len(p), nil
	}
	b.wire.stand()
	time.Sleep(b.wire.lag)
	switch passes, err := b.wire.pass(); {
	case err != nil:
		return 0, err
	case !passes:
		return len(p), nil
	}
	return len(p), b.answer(requests)
}

// answer executes commands; no command of another connection comes between them.
func (b *bridge) answer(requests [][]byte) error {
	world := b.wire.world
	world.redis.mu.Lock()
	defer world.redis.mu.Unlock()
	gone := false
	for _, request := range requests {
		args := command(request)
		if b.chat(args) {
			continue
		}
		request, args = world.stamp(request, args)
		reply, err := world.redis.do(request)
		if err != nil {
			return err
		}
		world.account.saw(b.wire, args, reply)
		gone = gone || b.wire.loses(args, reply)
		if !gone {
			b.mu.Lock()
			b.comes = time.Now().Add(b.wire.lag)
			b.mu.Unlock()
			b.deliver(reply)
		}
	}
	if gone {
		b.hangUp()
	}
	return nil
}

// chat answers the commands that concern the connection alone, since all bridges share one
// connection to Redis. A subscriber never gets a message. chat answers even if the wire is cut:
// go-redis holds a mutex meanwhile, and virtual time stands still while a goroutine waits for it.
func (b *bridge) chat(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch verb := strings.ToLower(args[0]); verb {
	case "hello":
		b.deliver([]byte("-ERR unknown command 'hello'\r\n")) // as before Redis 6
	case "subscribe", "unsubscribe":
		b.subscribed = true
		for i, channel := range args[1:] {
			reply := bytes.Replace(encode(verb, channel), []byte("*2"), []byte("*3"), 1)
			b.deliver(append(reply, ":"+strconv.Itoa(i+1)+"\r\n"...))
		}
	case "ping":
		if !b.subscribed {
			return false
		}
		b.deliver(encode("pong", ""))
	default:
		return false
	}
	return true
}

func (b *bridge) deliver(reply []byte) {
	b.mu.Lock()
	b.replies.Write(reply)
	b.mu.Unlock()
	b.tell()
}

// hangUp ends the connection from the other side, without the reply.
func (b *bridge) hangUp() {
	b.mu.Lock()
	b.lost = true
	b.mu.Unlock()
	b.tell()
}

func (b *bridge) tell() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// Read implements net.Conn.
func (b *bridge) Read(p []byte) (int, error) {
	for {
		b.travel()
		n, deadline, err := b.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		if err := b.await(deadline); err != nil {
			return 0, err
		}
	}
}

// travel waits until the replies have reached the process, and the process runs. The answers of chat arrive at once.
func (b *bridge) travel() {
	b.mu.Lock()
	comes := b.comes
	b.comes = time.Time{}
	b.mu.Unlock()
	if comes.IsZero() {
		return
	}
	time.Sleep(time.Until(comes))
	b.wire.stand()
}

// take reads the replies that have come.
func (b *bridge) take(p []byte) (n int, deadline time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.replies.Len() > 0:
		n, err = b.replies.Read(p)
	case b.lost:
		err = io.EOF
	}
	return n, b.deadline, err
}

func (b *bridge) await(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-b.news:
		return nil
	case <-b.closed:
		return net.ErrClosed
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

// Close implements net.Conn.
func (b *bridge) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// SetReadDeadline implements net.Conn.
func (b *bridge) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = t
	return nil
}

// SetDeadline implements net.Conn.
func (b *bridge) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn: no Write takes long.
func (b *bridge) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (b *bridge) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (b *bridge) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// command reads a request's words.
func command(request []byte) []string {
	var args []string
	for rest := request; len(rest) > 0; {
		line, after, found := bytes.Cut(rest, []byte("\r\n"))
		if !found {
			break
		}
		rest = after
		if len(line) > 0 && line[0] == '$' {
			n, err := strconv.Atoi(string(line[1:]))
			if err != nil || n+2 > len(rest) {
				break
			}
			args = append(args, string(rest[:n]))
			rest = rest[n+2:]
		}
	}
	return args
}

// encode writes a request.
func encode(args ...string) []byte {
	request := append(strconv.AppendInt([]byte{'*'}, int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		request = append(strconv.AppendInt(append(request, '$'), int64(len(arg)), 10), "\r\n"...)
		request = append(append(request, arg...), "\r\n"...)
	}
	return request
}

// decode reads the answer of a script: a text, or a flat array of integers and texts; nil for an
// error.
func decode(reply []byte) []any {
	rest := reply
	switch {
	case len(reply) == 0 || reply[0] != '*' && reply[0] != '$':
		return nil
	case reply[0] == '*':
		_, rest, _ = bytes.Cut(reply, []byte("\r\n"))
	}
	values := []any{}
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.ParseInt(string(line[1:]), 10, 64)
		switch {
		case err != nil:
			return nil
		case line[0] == ':':
			values, rest = append(values, n), after
		case line[0] == '$' && n >= 0:
			values, rest = append(values, string(after[:n])), after[n+2:]
		default:
			return nil
		}
	}
	return values
}
