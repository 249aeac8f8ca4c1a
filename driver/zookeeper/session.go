package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// slack is how much longer the timeout of a session is than the TTL of its claims. A handshake
// serves all that is asked within that time.
const slack = time.Second

// busyFor bounds how long a handshake waits for the answers to requests that are under way.
const busyFor = 100 * time.Millisecond

// state is how far a session has come.
//
//	         the first handshake        a handshake begins
//	opening ---------------------> up <--------------------> shaking
//	   |                            |     and is answered       |
//	   +------------> gone <--------+---------------------------+
//	       it has expired, or is closed
type state int

const (
	opening state = iota // there is no session yet
	up                   // requests can be sent
	shaking              // a new connection is under way; requests wait for it
	gone                 // its claims are gone, or will be soon
)

// session is a session of ZooKeeper, with the claims of one TTL.
//
// Only a handshake renews it, and only once a write has followed. The leader alone counts how long
// a session lasts. A request to another member does not make the leader count anew: the member
// tells of it with its answer to the next ping of the leader, if there is one. A member that is cut
// off goes on to answer reads and pings for syncLimit ticks, 10 s or more, while the leader lets
// the session end. (Wrong version: to count from when the last read, or the last ping, was sent.)
// Even a write that was carried out proves only that the session was there, not how long it still
// has: the leader looks at the session then, but does not count anew.
//
// A handshake is passed on to the leader, which counts anew from then, and its answer comes from
// there. The leader may be one that was paused and replaced, so what it counts is worth nothing.
// But a write needs a majority. If a write is answered on that connection, or on a later one, that
// leader was still the only one after the handshake began: a member that follows another leader
// drops its connections. Whoever becomes leader later gives each session its whole timeout, since
// the majority that elected it has seen that write. So from when the handshake began, the session
// lasts for its timeout at least.
type session struct {
	d       *Driver
	conn    *zk.Conn
	wants   time.Duration // the timeout that was asked for
	used    time.Time     // when somebody used it last; guarded by Driver.mu
	listens bool          // to what was taken by force; guarded by Driver.mu
	carries time.Time     // until then it has claims that no token of the driver has; guarded by Driver.mu

	mu      sync.Mutex // guards what follows
	state   state
	denied  error // why the user is refused
	login   bool  // the user has yet to be told to the server
	same    bool  // the next connection goes to the same server
	id      int64
	timeout time.Duration
	link    *link         // the last connection
	trouble error         // why there was none, until a server answers; nil if that is not known
	rounds  int           // how often no server was of use
	proven  time.Time     // the session lasts for its timeout from then, at least
	busy    int           // requests under way
	changed chan struct{} // closed and replaced when something of this changes
	watches map[string]news
	crowded int // so many watches are looked through for those that are over
}

var errExpired = fmt.Errorf("zkdriver: the session is over: %w", driver.ErrTransient)

// open starts a session.
func (d *Driver) open(wants time.Duration) (*session, error) {
	s := &session{d: d, wants: wants, timeout: wants, changed: make(chan struct{}), watches: map[string]news{}}
	s.mu.Lock() // until conn is there, dial waits
	defer s.mu.Unlock()
	conn, _, err := zk.Connect(d.servers, wants, zk.WithDialer(s.dial), zk.WithHostProvider(&members{s: s, at: -1}),
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithMaxConnBufferSize(sendBuffer))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	if s.login = d.user != nil; s.login {
		d.tasks.Go(s.logIn)
	}
	return s, nil
}

// logIn tells the server who the user is, before anything else. The client repeats that on later
// connections.
func (s *session) logIn() {
	for pause := time.Duration(0); !s.isOver(); {
		err := s.conn.AddAuth(s.d.user.scheme, s.d.user.secret)
		s.mu.Lock()
		if s.denied = err; err == nil {
			s.login = false
			l := s.link
			s.mu.Unlock()
			s.ready(l)
			return
		}
		s.change()
		s.mu.Unlock()
		pause = longer(pause)
		rest(s.d.ctx, pause)
	}
}

// silent is a log that nobody reads. Errors tell of failures.
type silent struct{}

func (silent) Printf(string, ...any) {}

// silence is how long a request may go unanswered before its connection is given up, so that
// another member can still save the leases.
func (s *session) silence() time.Duration { return min(max(s.wants/4, time.Second), 5*time.Second) }

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == gone
}

// change tells those that wait. The caller holds mu.
func (s *session) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// again reports whether the next connection goes to the same server.
func (s *session) again() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.same
	s.same = false
	return same
}

// open notes a connection, unless the session is over.
func (s *session) open(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == gone {
		return false
	}
	if s.link = l; s.state == up {
		s.state = shaking
	}
	return true
}

// shake notes what a server answers to a handshake. It reports false if the session is over.
func (s *session) shake(l *link, id int64, timeout time.Duration) bool {
	s.mu.Lock()
	if s.state == gone {
		s.mu.Unlock()
		return false
	}
	// A member that lets sessions last less long than the one before has shortened this one.
	if id == 0 || s.id != 0 && (id != s.id || timeout < s.timeout) {
		s.mu.Unlock()
		s.end()
		return id == 0 // so that the client hears of it
	}
	first := s.id == 0
	s.trouble = nil
	s.id, s.timeout = id, timeout
	watches := s.watching()
	s.mu.Unlock()
	if first || !watches {
		s.ready(l)
	} else {
		time.AfterFunc(busyFor, func() { s.ready(l) }) // should the client have no watch after all
	}
	return true
}

// ready notes that requests can be sent on a connection.
func (s *session) ready(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != gone && s.state != up && s.link == l && s.id != 0 && !s.login {
		s.state = up
		s.change()
	}
}

// end notes that the claims of the session are gone, or will be soon.
func (s *session) end() {
	s.mu.Lock()
	ended := s.state != gone
	if ended {
		s.state = gone
		s.change()
	}
	s.mu.Unlock()
	if ended {
		s.d.ended(s)
	}
}

// admit waits until a request can be sent, and returns the connection that it is sent on, if not on
// a later one. The caller calls done.
func (s *session) admit(ctx context.Context) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rounds := s.rounds; s.state != up; {
		switch {
		case s.state == gone:
			return nil, errExpired
		case s.rounds != rounds:
			return nil, unreachable{s.trouble}
		}
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
	s.busy++
	return s.link, nil
}

// fail notes why there is no connection.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// exhaust notes that all servers were tried in vain. Whoever has waited since before then is told why:
// the client itself goes on for ever.
func (s *session) exhaust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != nil {
		s.rounds++
		s.change()
	}
}

// wait waits until something has changed. The caller holds mu.
func (s *session) wait(ctx context.Context) (err error) {
	changed := s.changed
	s.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
		err = ended(ctx)
	}
	s.mu.Lock()
	if err != nil && s.trouble != nil {
		err = fmt.Errorf("%w: %w", err, s.trouble)
	}
	return err
}

func (s *session) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 {
		s.change()
	}
}

// call sends a request that changes nothing, and returns its answer. If its connection ends, for a
// handshake or by itself, it is sent once more. (Wrong version: to leave that to those who call the
// driver. The handshakes alone fail some requests then wherever an answer takes 100 ms.)
func call[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (v T, err error) {
	for try := range attempts(ctx) {
		if v, _, err = send(ctx, s, f); !errors.Is(err, zk.ErrConnectionClosed) || try == lastTry {
			return v, err
		}
	}
	return v, cmp.Or(err, ended(ctx))
}

// write sends a request that needs a majority, and returns its answer, or that there will be none. It
// does not return before, even if ctx ends: then nothing of it is under way any more that the caller
// does not know of.
func write[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (T, error) {
	v, l, err := send(ctx, s, f)
	if err == nil {
		s.prove(l)
	}
	return v, err
}

func send[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (none T, _ *link, _ error) {
	if ctx.Err() != nil {
		return none, nil, ended(ctx)
	}
	l, err := s.admit(ctx)
	if err != nil {
		return none, nil, err
	}
	defer s.done()
	late := time.AfterFunc(s.silence(), s.hurry)
	defer late.Stop()
	v, err := f(s.conn)
	return v, l, err
}

// hurry gives a connection up on which a request is not answered. If it is a new one the client
// itself will notice.
func (s *session) hurry() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if time.Since(l.began) >= s.silence() {
		_ = l.Close()
	}
}

// number is what ZooKeeper knows the session by.
func (s *session) number() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// prove notes that a write was answered that was sent on that connection or a later one.
func (s *session) prove(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.began.After(s.proven) {
		s.proven = l.began
	}
}

// lasts reports whether the session surely lasts until then.
func (s *session) lasts(until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != gone && !s.proven.Add(s.timeout).Before(until)
}

// touch makes sure that the session lasts until then once the next write is answered.
func (s *session) touch(ctx context.Context, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rounds := s.rounds; ; {
		switch {
		case s.state == gone:
			return errExpired
		case s.state != up && s.rounds != rounds:
			return unreachable{s.trouble}
		case errors.Is(s.denied, zk.ErrAuthFailed):
			return s.denied
		case s.state == up && s.timeout < s.wants:
			return refusal("the TTL is more than %v, as the server lets sessions last for %v at most, see its maxSessionTimeout: %w",
				s.timeout-slack, s.timeout, errors.ErrUnsupported)
		case s.state == up && !s.link.began.Add(s.timeout).Before(until):
			return nil
		case s.state == up:
			s.shakeHands(ctx)
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// shakeHands has the client connect again. The caller holds mu.
func (s *session) shakeHands(ctx context.Context) {
	s.state, s.same = shaking, true
	l, patience := s.link, time.Now().Add(busyFor)
	limit, cancel := context.WithDeadline(ctx, patience)
	defer cancel()
	s.change()
	for s.busy > 0 && limit.Err() == nil {
		_ = s.wait(limit)
	}
	if s.link == l {
		_ = l.Close()
	}
}

// stop closes the session, or only its connection if it has claims that are to stay.
func (s *session) stop(stays bool) {
	s.mu.Lock()
	l := s.link
	was := s.state
	s.state = gone
	s.change()
	s.mu.Unlock()
	if l != nil && (stays || was != up) {
		_ = l.Close()
	}
	s.conn.Close()
}
