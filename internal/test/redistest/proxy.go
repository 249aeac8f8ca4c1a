package redistest

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proxy stands between clients and a server and does what networks do. Unlike toxiproxy it
// knows commands from replies, so it can lose the answer to one chosen script. As a
// library, toxiproxy would also bring prometheus, zerolog and gorilla into the go.mod of
// all users of this module.
//
// In a [Bubble] it works too, in virtual time, and connects by pipes. There is no
// ECONNRESET there: a connection that was reset ends with io.EOF or EPIPE.
//
// Its methods may be called from any goroutine. The match functions given to it are called
// one at a time and must not call the proxy.
type Proxy struct {
	endpoint
	tb     testing.TB
	server *Server
	closed chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows, also the links' state
	listener net.Listener
	refuse   bool
	links    map[*link]struct{}
	hole     [2]bool
	took     int
	delay    time.Duration
	drops    []*drop
	holds    []*hold
	dropPush func(channel, payload string) bool

	maintains bool
}

// NewProxy returns a proxy in front of s, which ends with the test.
func NewProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, server: s, closed: make(chan struct{}), links: map[*link]struct{}{}}
	if s.dial != nil {
		p.endpoint = endpoint{network: s.network, addr: bubbleAddr, dial: p.pipe}
	} else {
		p.listenSomewhere()
		p.endpoint = at(p.listener.Addr().String())
	}
	tb.Cleanup(p.close)
	return p
}

// Cut resets the connections there are. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.resetLocked()
	}
}

// Refuse has new connections refused, or accepted again. It leaves alone those
// there are.
func (p *Proxy) Refuse(on bool) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse == on {
		return
	}
	p.refuse = on
	if p.dial != nil {
		return
	}
	if on {
		_ = p.listener.Close()
	} else if err := p.listenLocked(p.addr); err != nil {
		p.tb.Fatalf("redistest: proxy: %v", err)
	}
}

// BlackHole swallows what is sent in both directions, including the end of a connection,
// while connections stay open and new ones are accepted.
//
// Nothing that was swallowed comes later. A connection that lost something stays silent
// even when the black hole has gone, because no TCP stream goes on after a gap. Follow with
// [Proxy.Cut] to have it reset.
func (p *Proxy) BlackHole(on bool) { p.setHoles(on, toServer, toClient) }

// BlackHoleRequests is BlackHole in the direction of the server only.
func (p *Proxy) BlackHoleRequests(on bool) { p.setHoles(on, toServer) }

// BlackHoleReplies is BlackHole in the direction of the client only: the server still
// carries commands out.
func (p *Proxy) BlackHoleReplies(on bool) { p.setHoles(on, toClient) }

func (p *Proxy) setHoles(on bool, ways ...direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, way := range ways {
		p.hole[way] = on
	}
}

// Swallowed returns how many requests and replies the black holes have taken, for
// a test to know that its fault struck before it ends it.
func (p *Proxy) Swallowed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took
}

// Delay has all that is sent from now on arrive d later, in either direction: a
// round trip takes 2d. It is latency, not bandwidth: a pipeline takes no longer
// than a single command.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DropPush swallows the messages of pub/sub for which match returns true, as a
// server does for a subscriber it has lost. Nil ends that.
func (p *Proxy) DropPush(match func(channel, payload string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropPush = match
}

// Containing matches commands that have all the words among their arguments,
// whatever their case. The name of the command is its first argument:
//
//	p.DropReply(redistest.Containing("evalsha", token))
func Containing(words ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		for _, word := range words {
			if !slices.ContainsFunc(cmd, func(arg string) bool { return strings.EqualFold(arg, word) }) {
				return false
			}
		}
		return true
	}
}

// listenSomewhere takes a port that nobody gets while the proxy refuses; see
// randomPort.
func (p *Proxy) listenSomewhere() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for range 10 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(randomPort()))
		if err = p.listenLocked(addr); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		p.tb.Fatalf("redistest: proxy: %v", err)
	}
}

func (p *Proxy) listenLocked(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.join(client)
		}
	})
	return nil
}

// pipe is what a client in a bubble dials.
func (p *Proxy) pipe() (net.Conn, error) {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	client, far := net.Pipe()
	p.join(far)
	return newPipeEnd(client), nil
}

// join connects a client to the server. If that is not there the client's
// connection ends at once.
func (p *Proxy) join(client net.Conn) {
	server, err := p.server.connect()
	if err != nil {
		_ = client.Close()
		return
	}
	l := newLink(p, client, server)
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		l.closeLocked()
		return
	default:
	}
	p.links[l] = struct{}{}
	p.wg.Go(l.pumpRequests)
	p.wg.Go(l.pumpReplies)
	p.wg.Go(func() { l.deliver(toServer) })
	p.wg.Go(func() { l.deliver(toClient) })
}

func (p *Proxy) close() {
	p.mu.Lock()
	close(p.closed)
	if p.listener != nil {
		_ = p.listener.Close()
	}
	for l := range p.links {
		l.closeLocked()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
