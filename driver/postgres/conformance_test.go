package pgdriver_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// abilities are what the suite must not skip: all that there are.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.Tags, drivertest.Whose, drivertest.List, drivertest.Force,
	drivertest.Raise, drivertest.Notice, drivertest.Steal, drivertest.Owner, drivertest.Attach,
	drivertest.RWMutex, drivertest.Semaphore, drivertest.Downgrade, drivertest.Resize,
}

// store is a PostgreSQL with our schema.
type store struct {
	*pgtest.Server
	*pgxpool.Pool
}

// start starts a server for this test alone, which may hurt it.
func start(t testing.TB, args ...string) store {
	t.Helper()
	s := store{Server: pgtest.Start(t, args...)}
	s.Pool = s.pool(t)
	require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
	return s
}

// What the servers of tests that do not hurt them are started with. The tests look at what the server
// does, and it has enough to do without a vacuum that comes when it likes.
var (
	calm = []string{"-c", "max_connections=500", "-c", "autovacuum=off"}

	// With synchronous replication a waiter is told to ask. Here no commit waits, as that is about time
	// and not about what is promised.
	unconfirmed = append(slices.Clone(calm), "-c", "synchronous_standby_names=nobody", "-c", "synchronous_commit=local")
)

// begin runs the test beside others, with an empty database on a server that they share. Another test may
// have had it before, and another may have it next: a test that changes more than the rows of our tables,
// or counts sessions, has one of its [own].
func begin(t *testing.T) store { return beginWith(t, calm) }

func beginWith(t *testing.T, args []string) store {
	t.Helper()
	server := pgtest.Shared(t, args...) // from now on, so that it is started once
	idle.join(t, server)
	t.Parallel()
	s, found := idle.take(server)
	if !found {
		s = create(t, server)
		s.Pool = s.open(t)
	}
	t.Cleanup(func() {
		// Not TRUNCATE, which has the sessions plan all that they do anew.
		_, err := s.Exec(context.Background(), `DELETE FROM holdfast.claim; DELETE FROM holdfast.tombstone; DELETE FROM holdfast.lock;
			SELECT setval('holdfast.place', 1, false)`)
		if !assert.NoError(t, err) || t.Failed() {
			s.Close() // Nobody knows what is in it.
			return
		}
		idle.put(server, s)
	})
	return s
}

// own runs the test beside others, with a database that no other test has. There is a role app, without
// rights.
func own(t *testing.T) store {
	t.Helper()
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	return database(t, server)
}

// idle are the databases that no test uses. A database costs the server as much as a small test, and so do
// the first calls of a session, for which it compiles our functions.
var idle = shelf{tests: map[*pgtest.Server]int{}, stores: map[*pgtest.Server][]store{}}

type shelf struct {
	sync.Mutex
	tests  map[*pgtest.Server]int // that may take one
	stores map[*pgtest.Server][]store
}

// join has the databases of a server wait for the test. The last one closes them, before its server ends.
func (i *shelf) join(t *testing.T, server *pgtest.Server) {
	i.Lock()
	defer i.Unlock()
	i.tests[server]++
	t.Cleanup(func() {
		i.Lock()
		defer i.Unlock()
		if i.tests[server]--; i.tests[server] == 0 {
			for _, s := range i.stores[server] {
				s.Close()
			}
			delete(i.stores, server)
		}
	})
}

func (i *shelf) take(server *pgtest.Server) (s store, found bool) {
	i.Lock()
	defer i.Unlock()
	if n := len(i.stores[server]); n > 0 {
		s, found = i.stores[server][n-1], true
		i.stores[server] = i.stores[server][:n-1]
	}
	return s, found
}

func (i *shelf) put(server *pgtest.Server, s store) {
	i.Lock()
	defer i.Unlock()
	i.stores[server] = append(i.stores[server], s)
}

// database makes a database with our schema, and a pool that ends with the test.
func database(t testing.TB, server *pgtest.Server) store {
	t.Helper()
	s := create(t, server)
	s.Pool = s.pool(t)
	return s
}

func create(t testing.TB, server *pgtest.Server) store {
	t.Helper()
	making.Lock()
	defer making.Unlock()
	admin, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	const template = "migrated"
	if !making.templates[server] {
		_, err = admin.Exec(t.Context(), `CREATE ROLE app LOGIN`)
		require.NoError(t, err)
		_, err = admin.Exec(t.Context(), `CREATE DATABASE `+template)
		require.NoError(t, err)
		pool, err := pgxpool.New(t.Context(), server.Database(template).DSN())
		require.NoError(t, err)
		defer pool.Close()
		require.NoError(t, pgdriver.Migrate(t.Context(), pool))
		pool.Close()
		making.templates[server] = true
	}
	making.n++
	name := fmt.Sprint("test", making.n)
	_, err = admin.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE `+template)
	require.NoError(t, err)
	return store{Server: server.Database(name)}
}

var making = struct {
	sync.Mutex
	n         int                     // databases
	templates map[*pgtest.Server]bool // the servers that have one
}{templates: map[*pgtest.Server]bool{}}

func (s store) pool(t testing.TB, mods ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := s.open(t, mods...)
	t.Cleanup(pool.Close)
	return pool
}

func (s store) open(t testing.TB, mods ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(s.DSN())
	require.NoError(t, err)
	c.MaxConns = 8
	for _, mod := range mods {
		mod(c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	return pool
}

func TestConformance(t *testing.T) {
	database(t, pgtest.Shared(t, calm...)).conforms(t, gated(), abilities)
}

// The suite finds no Push where a waiter is told to ask. Waiters of all kinds are told so in one
// place, so of the three forms of an exclusive lock the mutex is enough. Outside of the soak it is
// those cases in which somebody is served who has waited: what happens to others is the same
// in either way.
func TestConformanceWhereWaitersAreToldToAsk(t *testing.T) {
	redistest.SoakOnly(t)
	must := slices.DeleteFunc(slices.Clone(abilities), func(a drivertest.Ability) bool { return a == drivertest.Push })
	cases := slices.DeleteFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Form != "" || !redistest.Again() && !serves.MatchString(c.Name) })
	database(t, pgtest.Shared(t, unconfirmed...)).conforms(t, cases, must)
}

// serves finds cases in which somebody is served who has waited.
var serves = regexp.MustCompile(`Served|Wait|Next|Behind|ExcludeEachOther|WithinTheLimit|Steal|LetsIn|LetsAllIn|LetsTheReaders|Starved|OverTheQueue`)

// gated are the cases of the suite. The other two forms of an exclusive lock are the same functions
// of the schema with other arguments, and are for the soak.
func gated() []drivertest.Case {
	return slices.DeleteFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Form != "" && !redistest.Again() })
}

// conforms runs cases with drivers that serve one case after the other. The first call of each
// function takes 50 ms of a processor in a new session, where page faults are slow, and a case
// has seven drivers. Those that are about Close have drivers of their own.
func (s store) conforms(t *testing.T, cases []drivertest.Case, must []drivertest.Ability) {
	var drivers lent
	t.Cleanup(drivers.close)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // most of them wait for leases to end
			c.Run(t, func(*testing.T) driver.Driver {
				if strings.Contains(c.Name, "Close") {
					return pgdriver.New(s.Pool)
				}
				return drivers.take(s.Pool)
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
