package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	gooselock "github.com/holdfast-go/holdfast/adapters/goose"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

const soon = 10 * time.Second

// provider is a process that migrates the database in file.
func provider(t *testing.T, file string, locks *holdfast.Client, migrate func(context.Context, *sql.Tx) error) *goose.Provider {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	p, err := goose.NewProvider(goose.DialectSQLite3, db, nil,
		goose.WithLocker(gooselock.New(locks, "migrations")),
		goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{RunTx: migrate}, nil)))
	require.NoError(t, err)
	return p
}

func TestProcessesMigrateOnce(t *testing.T) {
	store, file := memdriver.New(), filepath.Join(t.TempDir(), "db")
	var migrated atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		locks := holdfast.Open(store)
		t.Cleanup(func() { assert.NoError(t, locks.Close()) })
		p := provider(t, file, locks, func(ctx context.Context, tx *sql.Tx) error {
			assert.False(t, locks.Mutex("migrations").TryLock(), "goose does not hold the lock")
			migrated.Add(1)
			_, err := tx.ExecContext(ctx, "CREATE TABLE shop (id INTEGER)")
			return err
		})
		wg.Go(func() {
			_, err := p.Up(t.Context())
			assert.NoError(t, err)
			v, err := p.GetDBVersion(t.Context())
			assert.NoError(t, err)
			assert.EqualValues(t, 1, v)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, migrated.Load())
	locks := holdfast.Open(store)
	defer locks.Close()
	assert.True(t, locks.Mutex("migrations").TryLock(), "it is still locked")
}

func TestLossAndFailuresAreTold(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	mu := locks.Mutex("migrations")
	p := provider(t, filepath.Join(t.TempDir(), "db"), locks, func(ctx context.Context, _ *sql.Tx) error {
		return mu.ForceUnlock(ctx)
	})
	_, err := p.Up(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLost)

	p = provider(t, filepath.Join(t.TempDir(), "db"), locks, func(context.Context, *sql.Tx) error {
		return fmt.Errorf("no such column")
	})
	_, err = p.Up(t.Context())
	require.ErrorContains(t, err, "no such column")
	require.True(t, mu.TryLock(), "it is still locked")

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := p.Up(ctx)
		failed <- err
	}()
	require.Eventually(t, func() bool {
		info, err := mu.Inspect(t.Context())
		return err == nil && len(info.Queue) == 1
	}, soon, time.Millisecond)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(soon):
		t.Fatal("it waits on")
	}
}

func TestUnlockOfALostLeaseFreesNobodyElse(t *testing.T) {
	store := memdriver.New()
	ours, theirs := holdfast.Open(store), holdfast.Open(store)
	defer func() { require.NoError(t, ours.Close()); require.NoError(t, theirs.Close()) }()
	l, ctx := gooselock.New(ours, "x"), t.Context()

	require.NoError(t, l.Lock(ctx, nil))
	require.NoError(t, ours.Mutex("x").ForceUnlock(ctx))
	require.NoError(t, l.Lock(ctx, nil), "the next holder, of the same process")
	require.ErrorIs(t, l.Unlock(ctx, nil), holdfast.ErrLost, "FOUL: it gave up the lock of the next holder")
	require.False(t, theirs.Mutex("x").TryLock(), "FOUL: the next holder works without the lock")
	require.NoError(t, l.Unlock(ctx, nil))
	require.True(t, theirs.Mutex("x").TryLock(), "it is still locked")
}
