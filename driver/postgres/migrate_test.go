package pgdriver_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

func TestMigrateTakesASchemaThatWasMadeForItsUser(t *testing.T) {
	s := own(t)
	_, err := s.Exec(t.Context(), `DROP SCHEMA holdfast CASCADE; CREATE SCHEMA holdfast AUTHORIZATION app`)
	require.NoError(t, err)
	s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.User = "app" })
	_, err = s.Exec(t.Context(), `CREATE SCHEMA other`)
	require.ErrorContains(t, err, "42501", "it may make none itself")
	for range 2 {
		require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
	}
	a := s.asker(t)
	s.fenced(t, a.granted(request("a", long)))
	_, err = s.Exec(t.Context(), `SELECT holdfast.sweep()`)
	require.NoError(t, err)
}

// A client that finds an older schema says what to do, whether it lacks an argument or a result.
func TestClientInAnOlderSchemaIsToldToMigrate(t *testing.T) {
	s := own(t)
	old, err := os.ReadFile("testdata/schema_1.sql")
	require.NoError(t, err)
	for _, older := range []string{
		string(old),
		`CREATE SCHEMA holdfast; CREATE FUNCTION holdfast.acquire(text, bytea, text, bigint, interval, bigint, boolean, bigint, bigint,
			bytea, boolean, boolean, text, text, integer, bigint, bigint, OUT status text, OUT fence bigint) LANGUAGE sql AS 'SELECT NULL, NULL::bigint'`,
	} {
		_, err = s.Exec(t.Context(), `DROP SCHEMA holdfast CASCADE;`+older)
		require.NoError(t, err)
		_, err = s.asker(t).Acquire(t.Context(), request("a", long))
		require.ErrorContains(t, err, "run pgdriver.Migrate")
		require.NotErrorIs(t, err, driver.ErrTransient)
	}
}

// A program that has the package of version 1 goes on in a schema of this version: it and
// others wait for each other, and are told.
func TestClientOfVersion1AndThisOneExcludeEachOther(t *testing.T) {
	s := own(t)
	text, err := os.ReadFile("testdata/schema_1.sql")
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), `DROP SCHEMA holdfast CASCADE;`+string(text)+`; INSERT INTO holdfast.version VALUES (1)`)
	require.NoError(t, err)
	conn, err := s.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `LISTEN holdfast_old`)
	require.NoError(t, err)
	old := func(token string, ask int) (status string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT status FROM holdfast.acquire('mutex'::text, 'l'::bytea, $1::text, $2::bigint,
			'1 minute'::interval, 1::bigint, false, 1::bigint << 30, 1::bigint << 30, NULL::bytea, true, false,
			''::text, 'old'::text, pg_backend_pid(), NULL::bigint)`, token, ask).Scan(&status))
		return status
	}
	require.Equal(t, "granted", old("first", 1))
	for range 2 {
		require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
	}
	var version int
	require.NoError(t, s.QueryRow(t.Context(), `SELECT max(version) FROM holdfast.version`).Scan(&version))
	require.Equal(t, 7, version)

	a := s.asker(t)
	waiter := a.waits("waiter", long)
	require.Equal(t, "granted", old("first", 2), "it still has what it had")
	require.Equal(t, "queued", old("second", 1))
	_, err = conn.Exec(t.Context(), `SELECT holdfast.release('mutex', 'l', 'first', NULL, false)`)
	require.NoError(t, err)
	fence := a.granted(waiter)
	require.Equal(t, "queued", old("second", 2))
	a.release("waiter")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		note, err := conn.Conn().WaitForNotification(ctx)
		require.NoError(t, err)
		if strings.HasPrefix(note.Payload, "granted second ") {
			break
		}
	}
	g := a.busy(request("hasty", long))
	require.Greater(t, g.RetryAfter, time.Second)
	_, err = conn.Exec(t.Context(), `SELECT holdfast.release('mutex', 'l', 'second', NULL, false)`)
	require.NoError(t, err)
	require.Greater(t, a.granted(request("last", long)), fence)
}

// A call that is under way ends as it began, whatever has become of its function.
func TestCallUnderWayOutlivesAMigration(t *testing.T) {
	s := own(t)
	a := s.asker(t)
	a.granted(request("before", long))
	a.release("before")
	for i := range 2 {
		_, err := s.Exec(t.Context(), `TRUNCATE holdfast.version; INSERT INTO holdfast.version VALUES (5)`)
		require.NoError(t, err)
		tx := s.stuck(t)
		asked := make(chan error, 1)
		token := fmt.Sprint("a", i)
		go func() {
			_, err := a.Acquire(context.Background(), request(token, long))
			asked <- err
		}()
		require.Eventually(t, func() bool { return s.blocked(t) == 1 }, patience, time.Millisecond)
		require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-asked)
		a.release(token)
	}
}
