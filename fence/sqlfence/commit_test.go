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

// mute is a database that never answers a commit, and a driver that waits for it as long as its context.
type mute struct{ *fake }

func (m mute) Connect(context.Context) (driver.Conn, error) {
	return muteConn{&fakeConn{fake: m.fake}}, nil
}

type muteConn struct{ *fakeConn }

func (c muteConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return muteTx{fakeTx(c), ctx}, c.did("begin")
}

type muteTx struct {
	fakeTx
	ctx context.Context
}

func (t muteTx) Commit() error {
	<-t.ctx.Done()
	return t.ctx.Err()
}

// A program whose context ends is not kept for ever by a database that is silent.
func TestCommitWithoutAnAnswerIsUnknownAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sqlfence.OpenDB(mute{&fake{fail: map[string]error{"ping": driver.ErrBadConn}}}, sqlfence.SQLite)
		locks := holdfast.Open(memdriver.New())
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(lease.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.ErrorIs(t, tx.Commit(), sqlfence.ErrUnknown)
		assert.Equal(t, time.Minute+10*time.Second, time.Since(began))
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, locks.Close())
		require.NoError(t, db.Close())
	})
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
