package sqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// through returns the engine by way of a wire with a socket of its own.
func through(t *testing.T, e engine) (*wire.Wire, engine) {
	dir, err := os.MkdirTemp("", "holdfast-wire-") // the name of t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	to, here := "", ""
	switch e.dialect {
	case sqlfence.Postgres:
		was := strings.TrimPrefix(strings.Fields(e.dsn)[0], "host=")
		to, here = filepath.Join(was, ".s.PGSQL.5432"), filepath.Join(dir, ".s.PGSQL.5432")
		e.dsn = strings.Replace(e.dsn, was, dir, 1)
	case sqlfence.MySQL:
		to, _, _ = strings.Cut(strings.TrimPrefix(e.dsn, "root@unix("), ")")
		here = filepath.Join(dir, "socket")
		e.dsn = strings.Replace(e.dsn, to, here, 1)
	default:
		t.Skip("it has no wire")
	}
	return wire.At(t, "unix", here, "unix", to), e
}

// A commit that was sent is carried out whether or not its lease goes on. It is told as what it is: done,
// undone by the database, or unknown, and never undone although the row is there.
func TestCommitIsToldAsItIsAlthoughItsLeaseEnds(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		plain := e.plain(t)
		w, far := through(t, e)
		db := far.guarded(t)
		locks := holdfast.Open(memdriver.New())
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		for _, outcome := range []string{"done", "undone", "unknown"} {
			t.Run(outcome, func(t *testing.T) {
				if outcome == "undone" && e.dialect != sqlfence.Postgres {
					t.Skip("it has no constraints that wait for the commit")
				}
				do(t, plain, "UPDATE state SET value = ''")
				if outcome == "undone" { // before the transaction, which would keep it out
					do(t, plain, "CREATE TABLE child (state INTEGER REFERENCES state (id) DEFERRABLE INITIALLY DEFERRED)")
					t.Cleanup(func() {
						_, err := plain.Exec("DROP TABLE child")
						require.NoError(t, err)
					})
				}
				lease, err := locks.Mutex(outcome, holdfast.WithTTL(time.Minute)).Lease(t.Context())
				require.NoError(t, err)
				ctx, lose := context.WithCancelCause(lease.Context())
				defer lose(nil)
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.Exec(e.update(), "late")
				require.NoError(t, err)
				if outcome == "undone" {
					_, err = tx.Exec("INSERT INTO child VALUES (99)")
					require.NoError(t, err)
				}

				w.Hold(wire.Answers, true)
				pass := func() { w.Hold(wire.Answers, false) }
				defer pass()
				committed := make(chan error, 1)
				go func() { committed <- tx.Commit() }()
				if outcome == "undone" {
					time.Sleep(100 * time.Millisecond)
				} else {
					require.Eventually(t, func() bool { return value(t, plain) == "late" }, time.Minute, 5*time.Millisecond)
				}
				lose(fmt.Errorf("%w: in a test", holdfast.ErrLost))
				select {
				case err := <-committed:
					require.Fail(t, "FOUL: nobody waits for the answer", "%v", err)
				case <-time.After(100 * time.Millisecond):
				}
				if outcome == "unknown" {
					w.Cut()
				}
				pass()
				err = <-committed
				switch outcome {
				case "done":
					assert.NoError(t, err, "FOUL: it is told as undone")
				case "undone":
					assert.ErrorContains(t, err, "23503")
					assert.NotErrorIs(t, err, sqlfence.ErrUnknown)
				case "unknown":
					assert.ErrorIs(t, err, sqlfence.ErrUnknown)
				}
				assert.NotErrorIs(t, err, holdfast.ErrLost, "FOUL: it went through")
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, db.PingContext(t.Context()), "the next finds a good connection")
			})
		}
	})
}
