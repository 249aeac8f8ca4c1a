//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { crew.Register("writer", writer) }

// writer is a program that has its lease in the context. Where its process must not know that the lease
// is over, as if it had been paused after it looked, the context has the fence alone.
func writer() {
	lab.WriteLate(func(_ *redis.Client, _ string, l *holdfast.Lease) func(string) string {
		e, db := engineOfParent()
		ctx := context.WithoutCancel(l.Context())
		fences, err := fence.Of(ctx)
		check(err)
		switch os.Getenv("GUARD") {
		case "none":
			ctx = context.Background()
		case "fence":
			ctx = fence.With(context.Background(), fences...)
		}
		return func(text string) string { return fmt.Sprint(writes[0].run(ctx, e, db, text)) }
	})
}

// engineOfParent is the engine that the environment names, see [engine.env].
func engineOfParent() (engine, *sql.DB) {
	dialect, _ := strconv.Atoi(os.Getenv("SQL_DIALECT"))
	e := engine{"", os.Getenv("SQL_DRIVER"), os.Getenv("SQL_DSN"), sqlfence.Dialect(dialect)}
	db, err := sqlfence.Open(e.driver, e.dsn, e.dialect)
	check(err)
	return e, db
}

func (e engine) env(more ...string) []string {
	return append(more, "SQL_DRIVER="+e.driver, "SQL_DSN="+e.dsn, "SQL_DIALECT="+strconv.Itoa(int(e.dialect)))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A holder is suspended for longer than its lease lasts, another one takes over and writes, and
// the first goes on to write.
func TestProcessThatWasSuspendedIsRefused(t *testing.T) {
	for _, guard := range []string{"none", "fence", "lease"} {
		t.Run(guard, func(t *testing.T) {
			few(t, func(t *testing.T, e engine) {
				plain, db := e.plain(t), e.guarded(t)
				stored := func() string { return value(t, plain) }
				answer := lab.WriteTooLate(t, redistest.Shared(t), "writer", e.env("GUARD="+guard), func(ctx context.Context, text string) error {
					return writes[0].run(ctx, e, db, text)
				}, stored)
				switch guard {
				case "none":
					assert.Equal(t, "<nil>", answer)
					assert.Equal(t, "too late", stored(), "without the guard the write lands")
				case "fence":
					assert.True(t, strings.HasPrefix(answer, "holdfast: stale fence: mutex:"), answer)
					assert.Equal(t, "of the next", stored())
				case "lease":
					assert.Contains(t, answer, "lost")
					assert.Equal(t, "of the next", stored())
				}
			})
		})
	}
}

func init() { crew.Register("committer", committer) }

// committer is a program that has a transaction open, and commits it when it is told to.
func committer() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	locks := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("REDIS_PREFIX")), holdfast.WithTTL(3*time.Second))
	e, db := engineOfParent()
	err := locks.Mutex("x").Do(context.Background(), func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		check(err)
		_, err = tx.Exec(e.update(), "late")
		check(err)
		crew.Report("open")
		crew.Order[string]()
		err = tx.Commit()
		crew.Report(fmt.Sprintln("committed", err == nil, err))
		return err
	})
	crew.Report(errors.Is(err, holdfast.ErrLost))
}

// A process is stopped with its transaction open, for longer than its lease, and goes on to commit.
func TestCommitOfAProcessThatWasStoppedIsToldAsItIs(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		server := redistest.Shared(t)
		plain := e.plain(t)
		p := crew.Start(t, "committer", e.env("REDIS_NETWORK="+server.Network(), "REDIS_ADDR="+server.Addr(), "REDIS_PREFIX="+server.Prefix())...)
		require.Equal(t, "open", crew.Hear[string](p))
		p.Pause()
		time.Sleep(4 * time.Second)
		p.Tell("go on")
		p.Resume()
		answer := crew.Hear[string](p)
		assert.Equal(t, strings.HasPrefix(answer, "committed true"), value(t, plain) == "late", "FOUL: %s", answer)
		require.True(t, crew.Hear[bool](p), "the lock was lost in any case")
	})
}
