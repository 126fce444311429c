package redistest

import (
	"bufio"
	"bytes"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a faulty network in front of a Redis server, or of miniredis. It
// passes everything on until a method says otherwise. Its methods may be called at
// any time by any goroutine.
type Proxy struct {
	// Addr is where clients connect to, host and port. It stays the same.
	Addr string

	tb     testing.TB
	target string
	done   chan struct{} // closed when the test has ended
	wg     sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	links    map[*link]struct{}
	flowing  chan struct{} // closed while bytes flow
	delay    time.Duration
	muted    bool
	unheard  string // the requests that Mute is for contain it, in lower case
	drops    []drop
	dropped  int
}

// drop is one reply that the proxy will lose.
type drop struct {
	match string // the text to match, in lower case
	skip  int    // how many matching requests come before
}

// NewProxy starts a proxy in front of the server at target, host and port. It
// ends, with its connections, when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := ports.listen()
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: listener.Addr().String(), tb: t, target: target, done: make(chan struct{}),
		links: make(map[*link]struct{}), flowing: make(chan struct{}),
	}
	close(p.flowing)
	p.accept(listener)
	t.Cleanup(func() {
		close(p.done)
		p.Refuse()
		p.wg.Wait()
	})
	return p
}

// DropNextReply loses the reply to the next request whose bytes contain match, in upper or lower case ("evalsha"; "" is
// any request): the server gets the request and replies, then the proxy cuts the connection instead of passing the
// reply on. n calls lose the next n replies.
func (p *Proxy) DropNextReply(match string) { p.DropReply(match, 1) }

// DropReply does what DropNextReply does for the n-th such request from now on: 1 is the next.
func (p *Proxy) DropReply(match string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, drop{match: strings.ToLower(match), skip: n - 1})
}

// Dropped returns how many replies were lost so far. A reply is counted before the
// client can notice its loss.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Stall lets nothing pass any more, in either direction, while connections stay
// open and new ones are accepted. Bytes that are sent meanwhile arrive after Unstall,
// even if the client has given up.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default: // stalled already
	}
}

// Unstall ends a Stall.
func (p *Proxy) Unstall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// Mute lets the requests whose bytes contain match, in upper or lower case ("evalsha"; "" is any
// request), reach the server, and loses the replies, while connections stay open and new ones are
// accepted: half-open. A connection that has lost a reply in this way never answers again, even
// after Unmute: its client would take the next reply for the lost one.
func (p *Proxy) Mute(match string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted, p.unheard = true, strings.ToLower(match)
}

// Unmute ends a Mute for new connections and for connections that have lost nothing.
func (p *Proxy) Unmute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = false
}

// mutes reports whether the reply to this request, and all replies after it, must vanish.
func (p *Proxy) mutes(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted && bytes.Contains(bytes.ToLower(request), []byte(p.unheard))
}

// Delay holds every reply back for d; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Refuse cuts every connection and refuses new ones, as a port without a listener
// does.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	links := p.links
	p.links = make(map[*link]struct{})
	p.mu.Unlock()
	if listener != nil {
		_ = listener.Close()
	}
	for l := range links {
		l.cut()
	}
}

// Accept ends a Refuse.
func (p *Proxy) Accept() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		p.tb.Errorf("redistest: proxy: %v", err)
		return
	}
	p.accept(listener)
}

func (p *Proxy) accept(listener net.Listener) {
	p.listener = listener
	p.wg.Go(func() { p.serve(listener) })
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, ended: make(chan struct{})}
		p.mu.Lock()
		refused := p.listener != listener
		if !refused {
			p.links[l] = struct{}{}
		}
		p.mu.Unlock()
		if refused {
			l.cut()
			return
		}
		p.wg.Go(l.passRequests)
		p.wg.Go(l.passReplies)
	}
}

// lost counts a reply that is not passed on.
func (p *Proxy) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
}

// claims reports whether the reply to this request must be lost.
func (p *Proxy) claims(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.drops) == 0 {
		return false
	}
	request = bytes.ToLower(request)
	claimed := -1
	for i := range p.drops {
		d := &p.drops[i]
		switch {
		case !bytes.Contains(request, []byte(d.match)):
		case d.skip > 0:
			d.skip--
		case claimed < 0:
			claimed = i
		}
	}
	if claimed < 0 {
		return false
	}
	p.drops = slices.Delete(p.drops, claimed, claimed+1)
	return true
}

// link is a client's connection, and the connection to the server that belongs to it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	ended          chan struct{}
	once           sync.Once

	mu      sync.Mutex
	awaited []bool // for each request without a reply so far: whether its reply must be lost
	raw     bool   // replies no longer answer requests one by one
	dead    bool   // no reply is passed on any more
}

func (l *link) passRequests() {
	defer l.cut()
	r := bufio.NewReader(l.client)
	for {
		request, err := ReadFrame(r)
		if err != nil {
			return
		}
		l.expect(request)
		if !l.waitForFlow() {
			return
		}
		if _, err := l.server.Write(request); err != nil {
			return
		}
	}
}

func (l *link) passReplies() {
	defer l.cut()
	r := bufio.NewReader(l.server)
	for {
		reply, err := ReadFrame(r)
		if err != nil {
			return
		}
		lost := reply[0] != '>' && l.answered() // '>' begins a push, which answers no request
		if !l.waitForFlow() || !l.waitForDelay() {
			return
		}
		if lost {
			l.proxy.lost()
			return
		}
		if l.swallows() {
			continue
		}
		if _, err := l.client.Write(reply); err != nil {
			return
		}
	}
}

// swallows reports whether this reply vanishes, with all that follow.
func (l *link) swallows() bool {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		l.proxy.lost()
	}
	return dead
}

// expect notes the request before its reply can come.
func (l *link) expect(request []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || l.proxy.mutes(request)
	if l.raw = l.raw || oneSided(request); l.raw {
		l.awaited = nil
		return
	}
	l.awaited = append(l.awaited, l.proxy.claims(request))
}

// answered reports whether the reply that came must be lost.
func (l *link) answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.awaited) == 0 {
		return false
	}
	lost := l.awaited[0]
	l.awaited = l.awaited[1:]
	return lost
}

// oneSided reports whether replies and requests no longer come in pairs after this
// request: SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, MONITOR.
func oneSided(request []byte) bool {
	_, command, _ := bytes.Cut(request, []byte("\r\n"))
	_, command, _ = bytes.Cut(command, []byte("\r\n"))
	command, _, _ = bytes.Cut(command, []byte("\r\n"))
	command = bytes.ToLower(command)
	return bytes.HasSuffix(command, []byte("subscribe")) || bytes.Equal(command, []byte("monitor"))
}

// waitForFlow waits while the proxy is stalled; false: the connection is cut.
func (l *link) waitForFlow() bool {
	l.proxy.mu.Lock()
	flowing := l.proxy.flowing
	l.proxy.mu.Unlock()
	select {
	case <-flowing:
		return true
	case <-l.ended:
	case <-l.proxy.done:
	}
	return false
}

// waitForDelay waits for the time that Delay has set; false: the connection is cut.
func (l *link) waitForDelay() bool {
	l.proxy.mu.Lock()
	delay := l.proxy.delay
	l.proxy.mu.Unlock()
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
	case <-l.proxy.done:
	}
	return false
}

// cut breaks both connections, once.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
		l.proxy.mu.Lock()
		delete(l.proxy.links, l)
		l.proxy.mu.Unlock()
	})
}
