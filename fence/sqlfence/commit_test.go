package sqlfence_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// mute is a database that never answers a commit, and a driver that waits for it as long as its context, or
// until the connection breaks, if broken is set.
type mute struct {
	*fake
	broken chan struct{}
}

func (m mute) Connect(context.Context) (driver.Conn, error) {
	return muteConn{&fakeConn{fake: m.fake}, m.broken}, nil
}

type muteConn struct {
	*fakeConn
	broken chan struct{}
}

func (c muteConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	if c.broken != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return muteTx{fakeTx{c.fakeConn}, ctx, c.broken}, c.did("begin")
}

func (c muteConn) Close() error {
	return nil // whoever does it: the log of the fake is for one connection
}

type muteTx struct {
	fakeTx
	ctx    context.Context
	broken chan struct{}
}

func (t muteTx) Commit() error {
	select {
	case <-t.ctx.Done():
		return t.ctx.Err()
	case <-t.broken:
		return driver.ErrBadConn
	}
}

// A program whose context ends is not kept for ever by a database that is silent, nor by a driver that waits on.
func TestCommitWithoutAnAnswerIsUnknownAfterTenSeconds(t *testing.T) {
	for name, more := range map[string]time.Duration{"the driver heeds its context": 0, "the driver waits on": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mute{fake: &fake{fail: map[string]error{"ping": driver.ErrBadConn}}}
				if more > 0 {
					m.broken = make(chan struct{})
				}
				db := sqlfence.OpenDB(m, sqlfence.SQLite)
				locks := holdfast.Open(memdriver.New())
				lease, err := locks.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(lease.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.ErrorIs(t, tx.Commit(), sqlfence.ErrUnknown)
				assert.Equal(t, time.Minute+10*time.Second+more, time.Since(began))
				next, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err, "on another connection")
				require.NoError(t, next.Rollback())
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, locks.Close())
				if more > 0 {
					close(m.broken)
				}
				require.NoError(t, db.Close())
			})
		})
	}
}

// The lease may know that it is over while its context has not ended yet, or does not.
func TestCommitIsNotSentAfterAKnownLoss(t *testing.T) {
	f := &fake{}
	db := f.open(t)
	locks := holdfast.Open(memdriver.New())
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	lease, err := locks.Mutex("x", holdfast.WithTTL(50*time.Millisecond), holdfast.WithoutRenewal()).Lease(t.Context())
	require.NoError(t, err)
	tx, err := db.BeginTx(context.WithoutCancel(lease.Context()), nil)
	require.NoError(t, err)
	<-lease.Done()
	f.took()
	require.ErrorIs(t, tx.Commit(), holdfast.ErrLost)
	assert.Equal(t, "rollback", f.took())
}
