//go:build unix

package sqltest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { redistest.RegisterChild("writer", writer) }

// writer is a program that takes a lock and writes each line that it reads, with its lease in
// the context. Where its process must not know that the lease is over, as if it had been
// paused after it looked, the context has the fence alone.
func writer() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	locks := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("REDIS_PREFIX")), holdfast.WithTTL(3*time.Second))
	dialect, _ := strconv.Atoi(os.Getenv("SQL_DIALECT"))
	e := engine{"", os.Getenv("SQL_DRIVER"), os.Getenv("SQL_DSN"), sqlfence.Dialect(dialect)}
	db, err := sqlfence.Open(e.driver, e.dsn, e.dialect)
	check(err)
	lease, err := locks.Mutex("x").Lease(context.Background())
	check(err)
	ctx := context.WithoutCancel(lease.Context())
	fences, err := fence.Of(ctx)
	check(err)
	switch os.Getenv("GUARD") {
	case "none":
		ctx = context.Background()
	case "fence":
		ctx = fence.With(context.Background(), fences...)
	}
	fmt.Println("leased")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("wrote", writes[0].run(ctx, e, db, in.Text()))
	}
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
				server := redistest.Shared(t)
				plain, db := e.plain(t), e.guarded(t)
				prefix := server.Prefix() + guard
				locks := holdfast.New(server.Client(t), holdfast.WithPrefix(prefix))
				t.Cleanup(func() { require.NoError(t, locks.Close()) })
				p := redistest.Child(t, "writer", "GUARD="+guard,
					"REDIS_NETWORK="+server.Network(), "REDIS_ADDR="+server.Addr(), "REDIS_PREFIX="+prefix,
					"SQL_DRIVER="+e.driver, "SQL_DSN="+e.dsn, "SQL_DIALECT="+strconv.Itoa(int(e.dialect)))
				say := func(line string) { _, err := fmt.Fprintln(p.Stdin(), line); require.NoError(t, err) }
				heard := func() string {
					select {
					case line := <-p.Lines():
						return line
					case <-time.After(20 * time.Second):
						t.Fatal("the process says nothing")
						return ""
					}
				}
				require.Equal(t, "leased", heard())
				say("in time")
				require.Equal(t, "wrote <nil>", heard())
				require.Equal(t, "in time", value(t, plain))

				require.NoError(t, p.Signal(syscall.SIGSTOP))
				require.NoError(t, locks.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
					return writes[0].run(ctx, e, db, "of the next")
				}))
				say("too late") // is read when it goes on
				require.NoError(t, p.Signal(syscall.SIGCONT))
				answer := heard()
				switch guard {
				case "none":
					assert.Equal(t, "wrote <nil>", answer)
					assert.Equal(t, "too late", value(t, plain), "without the guard the write lands")
				case "fence":
					assert.True(t, strings.HasPrefix(answer, "wrote holdfast: stale fence: mutex:x has "), answer)
					assert.Equal(t, "of the next", value(t, plain))
				case "lease":
					assert.Contains(t, answer, "lost")
					assert.Equal(t, "of the next", value(t, plain))
				}
			})
		})
	}
}

func init() { redistest.RegisterChild("committer", committer) }

// committer is a program that has a transaction open, and commits it when it reads a line.
func committer() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	locks := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("REDIS_PREFIX")), holdfast.WithTTL(3*time.Second))
	dialect, _ := strconv.Atoi(os.Getenv("SQL_DIALECT"))
	e := engine{"", os.Getenv("SQL_DRIVER"), os.Getenv("SQL_DSN"), sqlfence.Dialect(dialect)}
	db, err := sqlfence.Open(e.driver, e.dsn, e.dialect)
	check(err)
	err = locks.Mutex("x").Do(context.Background(), func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		check(err)
		_, err = tx.Exec(e.update(), "late")
		check(err)
		fmt.Println("open")
		bufio.NewScanner(os.Stdin).Scan()
		err = tx.Commit()
		fmt.Println("committed", err == nil, err)
		return err
	})
	fmt.Println("ended", errors.Is(err, holdfast.ErrLost))
}

// A process is stopped with its transaction open, for longer than its lease, and goes on to commit.
func TestCommitOfAProcessThatWasStoppedIsToldAsItIs(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		server := redistest.Shared(t)
		plain := e.plain(t)
		p := redistest.Child(t, "committer",
			"REDIS_NETWORK="+server.Network(), "REDIS_ADDR="+server.Addr(), "REDIS_PREFIX="+server.Prefix(),
			"SQL_DRIVER="+e.driver, "SQL_DSN="+e.dsn, "SQL_DIALECT="+strconv.Itoa(int(e.dialect)))
		heard := func() string {
			select {
			case line := <-p.Lines():
				return line
			case <-time.After(30 * time.Second):
				t.Fatal("the process says nothing")
				return ""
			}
		}
		require.Equal(t, "open", heard())
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		time.Sleep(4 * time.Second)
		_, err := fmt.Fprintln(p.Stdin(), "go on")
		require.NoError(t, err)
		require.NoError(t, p.Signal(syscall.SIGCONT))
		answer := heard()
		assert.Equal(t, strings.HasPrefix(answer, "committed true"), value(t, plain) == "late", "FOUL: %s", answer)
		require.Equal(t, "ended true", heard(), "the lock was lost in any case")
	})
}
