package pgdriver_test

import (
	"slices"
	"strings"
	"sync"
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
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.Tags, drivertest.Whose, drivertest.List, drivertest.Force,
	drivertest.Raise, drivertest.Extend, drivertest.Notice, drivertest.Steal, drivertest.Owner, drivertest.Attach,
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
	start(t, "-c", "max_connections=500").conforms(t, drivertest.Cases(), abilities)
}

// With synchronous replication a waiter is told to ask, so the suite finds no Push. Here no
// commit waits, as that is about time and not about what is promised. Waiters of all kinds are
// told so in one place, so of the three forms of an exclusive lock the mutex is enough.
func TestConformanceWhereWaitersAreToldToAsk(t *testing.T) {
	s := start(t, "-c", "max_connections=500", "-c", "synchronous_standby_names=nobody", "-c", "synchronous_commit=local")
	must := slices.DeleteFunc(slices.Clone(abilities), func(a drivertest.Ability) bool { return a == drivertest.Push })
	s.conforms(t, slices.DeleteFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Form != "" }), must)
}

// conforms runs cases with drivers that serve one case after the other. The first call of each
// function takes 50 ms of a processor in a new session, where page faults are slow, and a case
// has seven drivers. Those that are about Close have drivers of their own.
func (s store) conforms(t *testing.T, cases []drivertest.Case, must []drivertest.Ability) {
	var idle lent
	t.Cleanup(idle.close)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // most of them wait for leases to end
			c.Run(t, func(*testing.T) driver.Driver {
				if strings.Contains(c.Name, "Close") {
					return pgdriver.New(s.Pool)
				}
				return idle.take(s.Pool)
			}, must...)
		})
	}
}

// lent are the drivers that no case uses.
type lent struct {
	sync.Mutex
	drivers []*pgdriver.Driver
}

func (l *lent) take(pool *pgxpool.Pool) driver.Driver {
	l.Lock()
	defer l.Unlock()
	if n := len(l.drivers); n > 0 {
		d := l.drivers[n-1]
		l.drivers = l.drivers[:n-1]
		return borrowed{d, l}
	}
	return borrowed{pgdriver.New(pool), l}
}

func (l *lent) close() {
	for _, d := range l.drivers {
		_ = d.Close() // It returns no error.
	}
}

// borrowed is a driver that goes back when it is closed.
type borrowed struct {
	*pgdriver.Driver
	from *lent
}

func (b borrowed) Close() error {
	b.from.Lock()
	defer b.from.Unlock()
	b.from.drivers = append(b.from.drivers, b.Driver)
	return nil
}
