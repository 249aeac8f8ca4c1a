package pgdriver_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/pgtest"
)

// abilities are what the suite must not skip: all that there are.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.List, drivertest.Force,
	drivertest.Raise, drivertest.Extend, drivertest.Owner, drivertest.Attach,
	drivertest.RWMutex, drivertest.Semaphore, drivertest.Downgrade, drivertest.Resize,
}

// store is a PostgreSQL with our schema.
type store struct {
	*pgtest.Server
	*pgxpool.Pool
}

func start(t testing.TB, args ...string) store {
	t.Helper()
	s := store{Server: pgtest.Start(t, args...)}
	s.Pool = s.pool(t)
	require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
	return s
}

func (s store) pool(t testing.TB, mods ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(s.DSN())
	require.NoError(t, err)
	c.MaxConns = 8
	for _, mod := range mods {
		mod(c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestConformance(t *testing.T) {
	s := start(t, "-c", "max_connections=500")
	open := func(*testing.T) driver.Driver { return pgdriver.New(s.Pool) }
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // most of them wait for leases to end
			c.Run(t, open, abilities...)
		})
	}
}

// With synchronous replication a waiter is told to ask, so the suite finds no Push. Here no
// commit waits, as that is about time and not about what is promised. Waiters of all kinds are
// told so in one place, so of the three forms of an exclusive lock the mutex is enough.
func TestConformanceWhereWaitersAreToldToAsk(t *testing.T) {
	s := start(t, "-c", "max_connections=500", "-c", "synchronous_standby_names=nobody", "-c", "synchronous_commit=local")
	open := func(*testing.T) driver.Driver { return pgdriver.New(s.Pool) }
	must := slices.DeleteFunc(slices.Clone(abilities), func(a drivertest.Ability) bool { return a == drivertest.Push })
	for _, c := range drivertest.Cases() {
		if !strings.HasPrefix(c.Name, "AllPermits") && !strings.HasPrefix(c.Name, "Writer") {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, open, must...)
			})
		}
	}
}
