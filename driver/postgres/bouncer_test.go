//go:build unix

package pgdriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The sessions keep what was prepared in them if the pooler does not discard it.
func TestNewsComesInBehindAPoolerThatKeepsPreparedStatements(t *testing.T) {
	s := own(t)
	dsn := s.Bouncer(t, "session", 2, "server_reset_query = UNLISTEN *")
	for range 3 { // one process after the other
		pool, err := pgxpool.New(t.Context(), dsn+" pool_max_conns=1")
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		d := store{s.Server, pool}.asker(t)
		d.granted(request("holder", long))
		d.listens(request("waiter", long))
		d.release("waiter")
		d.release("holder")
		require.NoError(t, d.Close())
	}
}

// Programs call Migrate at every start, with a pool as pgx makes it.
func TestSchemaIsBroughtUpToDateBehindATransactionPooler(t *testing.T) {
	s := own(t)
	dsn := s.Bouncer(t, "transaction", 1)
	for range 3 {
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		require.NoError(t, pgdriver.Migrate(t.Context(), pool))
		pool.Close()
	}
}

// Other programs use the sessions of the pooler afterwards.
func TestTransactionPoolerIsLeftWithoutListenAndLock(t *testing.T) {
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t, server)
			dsn := s.Bouncer(t, "transaction", 4)
			pooled := func() *pgxpool.Pool {
				return s.pool(t, func(c *pgxpool.Config) {
					other, err := pgxpool.ParseConfig(dsn)
					require.NoError(t, err)
					*c = *other
					c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 3, mode
				})
			}
			for range 3 { // one process after the other
				d := store{s.Server, pooled()}.asker(t)
				reasons := make(chan string, 10)
				d.OnReconnect(func(reason string) { reasons <- reason })
				d.granted(request("holder", long))
				waiter := d.waits("waiter", long)
				require.LessOrEqual(t, d.ask(waiter).RetryAfter, 250*time.Millisecond, "it polls")
				require.Equal(t, "mute", soon(t, reasons))
				d.release("waiter")
				d.release("holder")
				require.NoError(t, d.Close())
			}
			// All sessions of the pooler at once say what they listen to.
			pool := pooled()
			var mu sync.Mutex
			sessions, channels := map[int]bool{}, []string{}
			for deadline := time.Now().Add(patience); len(sessions) < 3 && time.Now().Before(deadline); {
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						var pid int
						var heard *string
						err := pool.QueryRow(context.Background(), `SELECT pg_backend_pid(),
							(SELECT string_agg(c, ' ') FROM pg_listening_channels() c) FROM pg_sleep(0.2)`).Scan(&pid, &heard)
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							channels = append(channels, err.Error())
						}
						sessions[pid] = true
						if heard != nil {
							channels = append(channels, fmt.Sprint(pid, " ", *heard))
						}
					})
				}
				wg.Wait()
			}
			require.Empty(t, strings.Join(channels, "\n"))
			require.Zero(t, s.sessions(t))
		})
	}
}

// A call that waits for the row of a lock, which another session keeps as it waits for a standby,
// is given up. A pooler whose client has gone leaves its backend waiting.
func TestBackendsOfCallsThatAreGivenUpDoNotPileUp(t *testing.T) {
	redistest.SoakOnly(t)
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	const size = 10
	rounds := 2 // of two calls by each of 8 goroutines: three times as many as may pile up
	if redistest.Again() {
		rounds = 6
	}
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := database(t, server)
			config, err := pgxpool.ParseConfig(s.Bouncer(t, mode, size))
			require.NoError(t, err)
			config.MaxConns = 8
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			d := pgdriver.New(pool)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			r := request(mode, long)
			r.Name = mode
			asker{t, d}.granted(r)
			s.stuck(t)
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					for range rounds {
						_ = d.Renew(context.Background(), []driver.Lease{{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: time.Second}})
						_, err := d.Notice(context.Background(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: time.Second})
						assert.ErrorIs(t, err, driver.ErrTransient)
					}
				})
			}
			calls.Wait()
			require.Eventually(t, func() bool { return s.blocked(t) <= size }, patience, 10*time.Millisecond, "backends that wait for the row, of all the calls that were given up")
		})
	}
}

// A PgBouncer refuses a password with the SQLSTATE of a broken connection, which would be waited out.
func TestPasswordThatAPoolerRefusesIsDenied(t *testing.T) {
	dsn := own(t).Bouncer(t, "transaction", 4, "auth_type = md5") // it has no file of users
	pool, err := pgxpool.New(t.Context(), dsn+" password=wrong")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	locks := holdfast.Open(pgdriver.New(pool), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = locks.Mutex("x").TryLease(ctx)
	require.ErrorIs(t, err, driver.ErrDenied)
	_, err = locks.Mutex("x").Lease(ctx)
	require.ErrorIs(t, err, driver.ErrDenied)
	require.NoError(t, ctx.Err(), "it is told at once")
}
