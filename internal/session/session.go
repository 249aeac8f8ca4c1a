// Package session is a driver and the life of a client of it. It knows which operations are
// under way and what the store has answered lately, and it ends all of them.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/stamp"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Session is a driver in use by a client.
type Session struct {
	Driver driver.Driver
	Abilities
	Holder string // what Inspect shows to others
	Traced bool   // commands that nobody asked for are in the trace of what they are for

	id    string // begins the tokens
	count atomic.Uint64

	// accepted is set once the store has carried out a command: it can be used, and a later
	// refusal is a change over there, such as a rotated password.
	accepted atomic.Bool
	began    time.Time
	heard    atomic.Int64 // when the store last gave a sign of life, after began; 0 if never
	kept     atomic.Int64 // when a caller in place has had to wait, last, after began; 0 if never

	// Not for all clients: in a test each may have a time of its own.
	alarms sync.Pool
	Posts  sync.Pool // of package token

	outages outages

	underWay atomic.Int64  // twice the operations under way, and 1 if the session is shut
	drained  chan struct{} // closed when it is, and none is left

	closing context.Context // ends when the session is shut
	shut    context.CancelFunc
	life    context.Context // ends when End is called
	end     context.CancelFunc
}

// New begins a session.
func New(d driver.Driver) *Session {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s := &Session{
		Driver:    d,
		Abilities: abilitiesOf(d),
		Holder:    host + ":" + strconv.Itoa(os.Getpid()),
		id:        string(appendRandom(nil)),
		began:     time.Now(),
		drained:   make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.closing, s.shut = context.WithCancel(s.life)
	return s
}

// shutBit of underWay says that the session is shut.
const shutBit = 1

// Begin starts an operation, which ends with Done. It reports false if the session is shut.
func (s *Session) Begin() bool {
	for {
		now := s.underWay.Load()
		if now&shutBit != 0 {
			return false
		}
		if s.underWay.CompareAndSwap(now, now+2) {
			return true
		}
	}
}

// BeginWithin starts another operation within one that has begun and not ended, or within Close.
func (s *Session) BeginWithin() { s.underWay.Add(2) }

// Go runs f on another goroutine, as an operation within one that has begun and not ended.
func (s *Session) Go(f func()) {
	s.BeginWithin()
	go func() {
		defer s.Done()
		f()
	}()
}

// Done ends an operation.
func (s *Session) Done() {
	if s.underWay.Add(-2) == shutBit {
		close(s.drained)
	}
}

// Close shuts the session: no operation begins any more, and operations that wait give up.
// Then it calls within, returns when all operations have ended, and reports true. If Close
// was called before, it reports false at once.
func (s *Session) Close(within func()) bool {
	for now := s.underWay.Load(); ; now = s.underWay.Load() {
		if now&shutBit != 0 {
			return false
		}
		if s.underWay.CompareAndSwap(now, now+2|shutBit) {
			break
		}
	}
	s.shut()
	within()
	s.Done()
	<-s.drained
	return true
}

// Open reports whether the session is not shut.
func (s *Session) Open() bool { return s.underWay.Load()&shutBit == 0 }

// Closing returns a channel that is closed when the session is shut.
func (s *Session) Closing() <-chan struct{} { return s.closing.Done() }

// End ends the commands that go on although nobody waits for them.
func (s *Session) End() { s.end() }

// Context is the context of commands that go on although nobody waits for them.
func (s *Session) Context() context.Context { return s.life }

// Detached returns a context for commands that must be carried out although ctx may have
// ended. It has the values of ctx, such as the span, and ends when the session does. It has
// no leases, so that a guard does not stop the release of a lease that is over.
func (s *Session) Detached(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return s.life // which costs nothing
	}
	return leasectx.Detached(s.life, ctx)
}

// UntilClose is Detached for a command that is not worth waiting for: its context ends as soon as
// the session is shut.
func (s *Session) UntilClose(ctx context.Context) context.Context {
	return leasectx.Detached(s.closing, ctx)
}

// Unasked returns ctx for a command that nobody asked for. By default that is in nobody's trace.
func (s *Session) Unasked(ctx context.Context) context.Context {
	if s.Traced {
		return ctx
	}
	return telemetry.Unasked(ctx)
}

// Beat returns the last beat up to t. There is one every so often since the session began.
func (s *Session) Beat(t time.Time, every time.Duration) time.Time {
	return t.Add(-(t.Sub(s.began) % every))
}

// NewToken returns the identity of an acquisition. The counter tells the tokens of this
// client apart. The random part tells them from those of its clones: a virtual machine that
// was copied while it ran must not repeat them. The token also tells when it was made.
func (s *Session) NewToken() string {
	b := make([]byte, 0, 56)
	b = append(b, s.id...)
	b = append(b, '-')
	b = strconv.AppendUint(b, s.count.Add(1), 10)
	return string(stamp.Append(b))
}

func appendRandom(to []byte) []byte {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.AppendEncode(to, b[:])
}

// Answered notes that the store has answered.
func (s *Session) Answered() {
	if !s.accepted.Load() {
		s.accepted.Store(true)
	}
	s.Heard()
}

// Heard notes that the store has given a sign of life: an answer, or news.
func (s *Session) Heard() { s.heard.Store(max(1, int64(time.Since(s.began)))) }

// Accepted reports whether the store has ever carried out a command.
func (s *Session) Accepted() bool { return s.accepted.Load() }

// brisk is for how long a sign of life says that the store will answer the next command, too.
// In contention a client hears something every few milliseconds, as it is granted the lock.
const brisk = 50 * time.Millisecond

const (
	// MostInPlace is how long a command may take of a store that falls silent just now, so that callers wait for it
	// in place. It is the ReadTimeout that go-redis has by default.
	MostInPlace = 5 * time.Second
	// unsent is how long a command in place may take, beside its timeout, until it is written. It waits to
	// share a call with others for a second at most, and these wait for a connection for as long.
	unsent = 2 * time.Second
	// LeastHang is how long a command may go unanswered at least before it is repeated. The store may be
	// far away.
	LeastHang = 250 * time.Millisecond
	// wary is for how long nobody waits in place after somebody was kept. A node of a Cluster may be silent
	// while others answer.
	wary = 10 * time.Second
)

// Brisk reports whether the store has just given a sign of life, and so will answer the next
// command. Then a caller that must not wait for long can nevertheless wait for the answer
// itself: in place.
//
// To have another goroutine wait for it takes more time than the command. Its start wakes a thread, and so does
// its answer. Both look for work, where there are few cores on that of Redis. On two cores a cycle
// without contention took 1.6 times as long as a raw lock, and takes 1.2 to 1.45 times in place.
//
// Nothing that go-redis offers ends a read before its ReadTimeout, and a caller in a loop always finds
// the store brisk. So it is kept so long at the start of an outage. A coroutine ([iter.Pull]) wakes no
// thread and could be left, but ends a program whose caller is locked to one.
func (s *Session) Brisk() bool {
	now, heard := time.Since(s.began), time.Duration(s.heard.Load())
	if heard == 0 || now-heard >= brisk {
		return false
	}
	kept := time.Duration(s.kept.Load())
	return kept == 0 || now-kept >= wary
}

// InPlace reports whether a caller with that context, and a lock with that TTL, waits for an answer itself. If the
// store falls silent just now, it hears late that it is canceled, but does not miss its deadline. Nor does a
// waiter miss so many heartbeats that it loses its place.
func (s *Session) InPlace(ctx context.Context, ttl time.Duration) bool {
	if !s.Brisk() {
		return false
	}
	if ctx.Done() == nil {
		return true
	}
	if ctx.Err() != nil || s.Timeout <= 0 || s.Timeout > min(MostInPlace, ttl/2) {
		return false
	}
	end, bounded := ctx.Deadline()
	return !bounded || time.Until(end) > s.Timeout+unsent
}

// Kept notes that a caller in place has to wait.
func (s *Session) Kept() { s.kept.Store(int64(time.Since(s.began))) }
