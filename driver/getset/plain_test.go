package getset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// plain is a program with the old protocol, written step by step, so that a test can hold
// it up between any two.
type plain struct {
	t     *testing.T
	rdb   *redis.Client
	name  string
	lease time.Duration
	ahead time.Duration // its clock
	rule  rule          // by which it has won

	seen int64 // what GET saw
	ends int64 // of its own lease
}

// rule says by what the answer to GETSET is judged: documentation and programs have two.
type rule int

const (
	asSeen rule = iota // it is what GET saw
	past               // it is a time that is past
)

func (p *plain) now() int64 { return time.Now().Add(p.ahead).UnixMilli() }

func (p *plain) end() int64 {
	p.ends = p.now() + p.lease.Milliseconds() + 1
	return p.ends
}

func (p *plain) setnx() bool {
	ok, err := p.rdb.SetNX(p.t.Context(), p.name, p.end(), 0).Result()
	require.NoError(p.t, err)
	return ok
}

// look reports whether it sees an end that is past.
func (p *plain) look() bool {
	p.seen = 0
	err := p.rdb.Get(p.t.Context(), p.name).Scan(&p.seen)
	if err == redis.Nil {
		return false // It would start again.
	}
	require.NoError(p.t, err)
	return p.seen < p.now()
}

// swap reports whether it has won, by its rule.
func (p *plain) swap() bool {
	old, err := p.rdb.Do(p.t.Context(), "GETSET", p.name, p.end()).Int64()
	if err == redis.Nil {
		return false
	}
	require.NoError(p.t, err)
	if p.rule == past {
		return old < p.now()
	}
	return old == p.seen
}

// lock makes an attempt.
func (p *plain) lock() bool { return p.setnx() || p.look() && p.swap() }

// mayDelete is what it asks itself before it deletes.
func (p *plain) mayDelete() bool { return p.now() < p.ends }

func (p *plain) del() { require.NoError(p.t, p.rdb.Del(p.t.Context(), p.name).Err()) }

func (p *plain) unlock() {
	if p.mayDelete() {
		p.del()
	}
}

// unlockNow asks the value that is there now whether it may delete, and not its own end.
func (p *plain) unlockNow() {
	ends, err := p.rdb.Get(p.t.Context(), p.name).Int64()
	require.NoError(p.t, err)
	if p.now() < ends {
		p.del()
	}
}

// ours is a token of this driver.
type ours struct {
	t       *testing.T
	d       *getset.Driver
	lease   driver.Lease
	trusted time.Time
}

func (o *ours) lock() bool {
	sent := time.Now()
	r := request(o.lease.Name, o.lease.Token)
	r.TTL = o.lease.TTL
	g, err := o.d.Acquire(o.t.Context(), r)
	require.NoError(o.t, err)
	if g.Status == driver.Granted {
		o.trusted = sent.Add(o.lease.TTL)
	}
	return g.Status == driver.Granted
}

func (o *ours) renew() error   { return o.d.Renew(o.t.Context(), []driver.Lease{o.lease})[0] }
func (o *ours) release() error { return o.d.Release(o.t.Context(), o.lease) }

// stage is a lock that programs of both sorts use.
type stage struct {
	*testing.T
	rdb  *redis.Client
	name string
	ttl  time.Duration // of all leases, unless a test says otherwise
	n    int
}

// onStages runs body in virtual time, and on a real Redis, where a machine that stands still must end
// no lease.
func onStages(t *testing.T, body func(*stage)) {
	if redistest.Virtually() {
		onAStageInTime(t, body)
	}
	if redistest.Really() {
		onARealStage(t, body)
	}
}

// onStagesInTime is for what happens when leases end: it runs body in virtual time, and on a real
// Redis with HOLDFAST_LEGS=all only.
func onStagesInTime(t *testing.T, body func(*stage)) {
	if redistest.Virtually() {
		onAStageInTime(t, body)
	}
	if redistest.Everywhere() {
		onARealStage(t, body)
	}
}

func onAStageInTime(t *testing.T, body func(*stage)) {
	t.Run("miniredis", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) { body(newStage(t, s)) })
	})
}

func onARealStage(t *testing.T, body func(*stage)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, redistest.Shared(t))
		s.ttl *= 10
		body(s)
	})
}

func newStage(t *testing.T, s *redistest.Server) *stage {
	return &stage{T: t, rdb: s.Client(t), name: s.Prefix() + "lock", ttl: 2 * time.Second}
}

func (s *stage) plain() *plain { return &plain{t: s.T, rdb: s.rdb, name: s.name, lease: s.ttl} }

func (s *stage) ours() *ours {
	s.n++
	return &ours{t: s.T, d: getset.New(s.rdb), lease: driver.Lease{
		Kind: driver.Mutex, Name: s.name, Token: fmt.Sprintf("token-%d", s.n), TTL: s.ttl,
	}}
}

// crashed leaves a lock behind whose lease is past.
func (s *stage) crashed() {
	s.Helper()
	past := time.Now().Add(-time.Millisecond).UnixMilli()
	require.NoError(s, s.rdb.Set(s.Context(), s.name, past-1, 0).Err())
}

// value is what is in the lock.
func (s *stage) value() int64 {
	s.Helper()
	n, err := s.rdb.Get(s.Context(), s.name).Int64()
	require.NoError(s, err)
	return n
}
