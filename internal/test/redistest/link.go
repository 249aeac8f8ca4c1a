package redistest

import (
	"bufio"
	"net"
	"time"
)

// direction is one of the two ways through a proxy.
type direction int

const (
	toServer direction = iota
	toClient
)

// link is one connection through a proxy: a goroutine that reads and one that
// writes for each direction, with a queue between them in which time passes.
type link struct {
	proxy  *Proxy
	ends   [2]net.Conn // where each direction leads
	queues [2]chan parcel
	closed chan struct{}

	// Guarded by proxy.mu.
	lost       [2]bool // a stream with a gap: nothing more may come out of it
	expected   []expectation
	resp3      bool
	subscriber bool
	holding    bool // a request is being held
	maintained bool // the client wants to hear of maintenance
	ending     bool // the client has gone, the server still has to answer
}

type parcel struct {
	due time.Time
	raw []byte
}

// queueLength bounds how many frames can be under way with a Delay.
const queueLength = 4096

func newLink(p *Proxy, client, server net.Conn) *link {
	return &link{
		proxy:  p,
		ends:   [2]net.Conn{toServer: server, toClient: client},
		queues: [2]chan parcel{make(chan parcel, queueLength), make(chan parcel, queueLength)},
		closed: make(chan struct{}),
	}
}

// pumpRequests ends when the client has closed the connection.
func (l *link) pumpRequests() {
	r := bufio.NewReader(l.ends[toClient])
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		if l.swallow(toServer) {
			continue // and is not what the faults below wait for
		}
		faults := l.proxy.judge(l, f.words)
		if faults.hold != nil && !l.wait(faults.hold) {
			continue
		}
		l.expect(&f, faults)
		if l.subscribesToMaintenance(&f) {
			f.raw = []byte("CLIENT REPLY ON\r\n") // which any server answers with OK
		}
		l.post(toServer, f.raw)
	}
	// The server hears of the end after all that was sent before it.
	close(l.queues[toServer])
}

// pumpReplies ends when the server has closed the connection, or when receive says
// that this was the last.
func (l *link) pumpReplies() {
	r := bufio.NewReader(l.ends[toServer])
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		forward, last := l.receive(&f)
		if last {
			break // what was answered before still gets there
		}
		if forward {
			l.post(toClient, f.raw)
		}
	}
	close(l.queues[toClient])
}

// post queues what will be delivered after the delay.
func (l *link) post(way direction, raw []byte) {
	l.proxy.mu.Lock()
	due := time.Now().Add(l.proxy.delay)
	l.proxy.mu.Unlock()
	select {
	case l.queues[way] <- parcel{due, raw}:
	case <-l.closed:
	}
}

// deliver writes what was queued, when it is due. A black hole also takes what was
// under way before it opened.
func (l *link) deliver(way direction) {
	for {
		select {
		case p, more := <-l.queues[way]:
			if more && !l.sleepUntil(p.due) {
				return
			}
			swallowed := l.swallow(way)
			switch {
			case !more && !swallowed:
				l.finish(way)
				return
			case !more:
				return
			case !swallowed:
				// If it fails then that end has gone, and its reader knows.
				_, _ = l.ends[way].Write(p.raw)
			}
		case <-l.closed:
			return
		}
	}
}

func (l *link) sleepUntil(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// finish passes the end of a stream on.
func (l *link) finish(way direction) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if way == toServer && len(l.expected) > 0 {
		half, ok := l.ends[toServer].(interface{ CloseWrite() error })
		if ok && !l.heldLocked() {
			// Not Close, which can destroy what the server has not read yet. It closes
			// its side in turn, and then pumpReplies ends the link.
			_ = half.CloseWrite()
			return
		}
		// A pipe has no half to close. And the test that released a request waits for
		// its answer, which miniredis does not give to a client that is leaving.
		l.ending = true
		return
	}
	l.closeLocked()
}

// swallow says whether a black hole takes what is sent now, and remembers the gap.
func (l *link) swallow(way direction) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.hole[way] {
		l.lost[way] = true
		l.settleLocked()
	}
	if l.lost[way] {
		l.proxy.took++
	}
	return l.lost[way]
}

// resetLocked resets the client's connection, and ends the link unless a request
// is held: that one is on its way to the server already.
func (l *link) resetLocked() {
	if tcp, ok := l.ends[toClient].(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	if l.holding {
		_ = l.ends[toClient].Close()
		return
	}
	l.closeLocked()
}

func (l *link) closeLocked() {
	if isClosed(l.closed) {
		return
	}
	close(l.closed)
	for _, end := range l.ends {
		_ = end.Close()
	}
	l.settleLocked()
	delete(l.proxy.links, l)
}
