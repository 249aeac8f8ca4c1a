package pgdriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/leader"
)

// narrow returns the store with a queue of notifications that a test can fill: its usage is in public.queue.
func (s store) narrow(t testing.TB) store {
	t.Helper()
	_, err := s.Exec(t.Context(), `
		CREATE TABLE public.queue AS SELECT 0::float8 AS usage;
		CREATE FUNCTION public.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT usage FROM public.queue';
		CREATE TABLE public.told (news text);
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.told DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.refuse();
		CREATE FUNCTION public.notify(text, _news text) RETURNS void LANGUAGE sql AS 'INSERT INTO public.told VALUES (_news)'`)
	require.NoError(t, err)
	s.Pool = s.pool(t, shadowed)
	return s
}

// shadowed has sessions find the functions of a narrow store before those of the server.
func shadowed(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog" }

// fill has all news refused as PostgreSQL does whose queue is full: as the transaction commits.
func (s store) fill(t testing.TB) {
	s.notify(t, "pg_notify(", "public.notify(")
	s.use(t, 1)
}

func (s store) drain(t testing.TB) {
	s.notify(t, "public.notify(", "pg_notify(")
	s.use(t, 0)
}

func (s store) use(t testing.TB, usage float64) {
	t.Helper()
	_, err := s.Exec(t.Context(), `UPDATE public.queue SET usage = $1`, usage)
	require.NoError(t, err)
}

func (s store) notify(t testing.TB, was, is string) {
	t.Helper()
	var def string
	require.NoError(t, s.QueryRow(t.Context(), `SELECT pg_get_functiondef('holdfast.tell(text, text)'::regprocedure)`).Scan(&def))
	require.Contains(t, def, was)
	_, err := s.Exec(t.Context(), strings.Replace(def, was, is, 1))
	require.NoError(t, err)
}

// withoutRight has a user call who may not notify anybody.
func (s store) withoutRight(t testing.TB) store {
	t.Helper()
	_, err := s.Exec(t.Context(), `REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC;
		GRANT USAGE ON SCHEMA holdfast TO app; GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO app; GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO app`)
	require.NoError(t, err)
	s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.User = "app" })
	return s
}

// Whatever tells others is done although they cannot be told, and they find out when they ask.
func TestRefusedNewsUndoesNothing(t *testing.T) {
	redistest.SoakOnly(t)
	ctx := context.Background()
	req := func(k driver.Kind, token string, weight int64) *driver.Request {
		r := request(token, long)
		r.Kind, r.Wait = k, true
		if k == driver.Semaphore {
			r.Weight, r.Limit = weight, 2
		}
		return r
	}
	of := func(k driver.Kind, token string) driver.Lease {
		return driver.Lease{Kind: k, Name: "l", Token: token, TTL: long}
	}
	mutex := func(token string) *driver.Request { return req(driver.Mutex, token, 0) }
	// Each begins with a holder "holder", and with waiters "next" and "last" of another client.
	for _, c := range []struct {
		what    string
		holder  *driver.Request
		next    *driver.Request
		do      func(s store, a asker) error
		after   driver.Status // of the one that is next, when it asks
		noLease bool          // the holder has none any more
	}{
		{"release", mutex("holder"), mutex("next"), func(_ store, a asker) error {
			return a.Release(ctx, of(driver.Mutex, "holder"))
		}, driver.Granted, true},
		{"force", mutex("holder"), mutex("next"), func(_ store, a asker) error {
			return a.ForceRelease(ctx, driver.Mutex, "l")
		}, driver.Granted, true},
		{"steal", mutex("holder"), mutex("next"), func(_ store, a asker) error {
			g, err := a.Steal(ctx, request("thief", long))
			assert.Equal(t, driver.Granted, g.Status)
			return err
		}, driver.Queued, true},
		{"an ask after the end of a lease", mutex("holder"), mutex("next"), func(s store, a asker) error {
			_, err := s.Exec(ctx, `UPDATE holdfast.claim SET until = clock_timestamp() WHERE held`)
			require.NoError(t, err)
			_, err = a.Acquire(ctx, mutex("other"))
			return err
		}, driver.Granted, true},
		{"an ask for what lingers", func() *driver.Request { r := mutex("holder"); r.Notice = true; return r }(), mutex("next"), func(_ store, a asker) error {
			g, err := a.Acquire(ctx, mutex("other"))
			assert.Equal(t, driver.Queued, g.Status)
			return err
		}, driver.Queued, false},
		{"resize", req(driver.Semaphore, "holder", 2), req(driver.Semaphore, "next", 1), func(_ store, a asker) error {
			return a.Resize(ctx, "l", "change", 3)
		}, driver.Granted, false},
		{"release of a part", req(driver.Semaphore, "holder", 2), req(driver.Semaphore, "next", 1), func(_ store, a asker) error {
			return a.Downgrade(ctx, of(driver.Semaphore, "holder"), 1)
		}, driver.Granted, false},
		{"downgrade", req(driver.RWMutex, "holder", 0), func() *driver.Request { r := req(driver.RWMutex, "next", 0); r.Shared = true; return r }(), func(_ store, a asker) error {
			return a.Downgrade(ctx, of(driver.RWMutex, "holder"), 0)
		}, driver.Granted, false},
	} {
		for _, refusal := range []string{"queue is full", "no right"} {
			t.Run(c.what+", "+refusal, func(t *testing.T) {
				s := own(t).narrow(t)
				a, b := s.asker(t), s.asker(t)
				if refusal == "no right" {
					a = s.withoutRight(t).asker(t)
				}
				holder, next := *c.holder, *c.next
				b.granted(&holder)
				require.Equal(t, driver.Queued, b.ask(&next).Status)
				if refusal == "queue is full" {
					s.fill(t)
				}
				require.NoError(t, c.do(s, a), "FOUL: undone by its news")
				assert.Equal(t, c.after, b.ask(&next).Status)
				renewed := b.Renew(ctx, []driver.Lease{of(c.holder.Kind, "holder")})[0]
				if c.noLease {
					assert.ErrorIs(t, renewed, driver.ErrNotHeld)
				} else {
					assert.NoError(t, renewed)
				}
			})
		}
	}
}

// A client whose news was refused sends none for a while, so that not each of its calls is made twice,
// and tells again when there is room.
func TestNewsThatWasRefusedIsLeftOutForAWhile(t *testing.T) {
	s := own(t).narrow(t)
	var sent calls
	quiet := s
	quiet.Pool = s.pool(t, shadowed, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &sent })
	a, b := quiet.asker(t), s.asker(t)
	n := 0
	// handOver returns whether the waiter was told within some time.
	handOver := func(within time.Duration) bool {
		n++
		heard := make(chan driver.Grant, 10)
		holder := request(fmt.Sprint("a", n), long)
		a.granted(holder)
		waiter := b.waits(fmt.Sprint("b", n), long, heard)
		a.release(holder.Token)
		defer b.release(waiter.Token)
		for end := time.After(within); ; {
			select {
			case g := <-heard:
				if g.Status == driver.Granted {
					return true
				}
			case <-end:
				b.granted(waiter)
				return false
			}
		}
	}
	require.True(t, handOver(patience))
	s.fill(t)
	sent.Store(0)
	require.False(t, handOver(0))
	require.EqualValues(t, 2, sent.Load(), "again, without news")
	s.drain(t)
	require.Eventually(t, func() bool { return handOver(100 * time.Millisecond) }, patience, 10*time.Millisecond)
}

// calls counts releases.
type calls struct{ atomic.Int64 }

func (c *calls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "holdfast.release") {
		c.Add(1)
	}
	return ctx
}
func (c *calls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The contract of a driver holds while all news is refused.
func TestConformanceWhereNewsIsRefused(t *testing.T) {
	redistest.SoakOnly(t)
	must := slices.DeleteFunc(slices.Clone(abilities), func(a drivertest.Ability) bool { return a == drivertest.Push })
	cases := slices.DeleteFunc(gated(), func(c drivertest.Case) bool {
		return c.Name == "InspectShowsWhoWasServed" // It takes a store that does not tell for one that does not grant either.
	})
	s := database(t, pgtest.Shared(t, calm...)).narrow(t)
	s.fill(t)
	s.conforms(t, cases, must)
}

// A waiter hears nothing of a queue that is full, and the one who releases cannot tell it. So its client
// looks, and then asks itself.
func TestWaiterAsksWhileTheQueueIsFull(t *testing.T) {
	s := own(t).narrow(t)
	a := s.asker(t)
	reasons := make(chan string, 10)
	a.OnReconnect(func(reason string) { reasons <- reason })
	a.granted(request("holder", long))
	waiter := request("waiter", long)
	a.listens(waiter)
	require.Empty(t, reasons)
	s.use(t, 1)
	require.Equal(t, "mute", soon(t, reasons), "the queue is full, and somebody has looked")
	require.Less(t, a.ask(waiter).RetryAfter, time.Second, "it would not hear")
}

// Whoever waits goes on, and is served.
func TestRefusedNewsEndsNoWaiter(t *testing.T) {
	s := own(t).narrow(t)
	s.outlasts(t, func() { s.fill(t) }, shadowed)
}

// outlasts has three candidates and as many waiters at a time when all news is refused.
func (s store) outlasts(t *testing.T, refuse func(), mods ...func(*pgxpool.Config)) {
	const ttl = 6 * time.Second
	ctx := t.Context()
	var clients []*holdfast.Client
	for range 3 {
		c := holdfast.Open(pgdriver.New(s.pool(t, mods...)), holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		clients = append(clients, c)
	}
	held, err := clients[0].Mutex("m").Lease(ctx)
	require.NoError(t, err)
	ended, refused := make(chan error, 6), make(chan struct{})
	for _, c := range clients {
		go func() {
			ended <- c.Mutex("m", holdfast.WithStrictFIFO()).Do(ctx, func(context.Context) error { return nil })
		}()
		go func() {
			ended <- leader.New(c, "office").Run(ctx, func(context.Context) error { // A term each.
				<-refused
				return nil
			})
		}()
	}
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, s.QueryRow(ctx, `SELECT count(*) FROM holdfast.claim WHERE NOT held`).Scan(&n))
		return n == 5
	}, patience, 10*time.Millisecond, "all wait")
	refuse()
	close(refused)
	require.NoError(t, held.Release(ctx))
	for range 2 * len(clients) {
		select {
		case err := <-ended:
			require.NoError(t, err, "FOUL: a waiter has ended")
		case <-time.After(patience):
			require.Fail(t, "FOUL: nobody has the lock")
		}
	}
}

// A real queue, which only a newer PostgreSQL can be given a bound for.
func TestFullQueueOfPostgres(t *testing.T) {
	redistest.SoakOnly(t)
	var number int
	s := start(t)
	require.NoError(t, s.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).Scan(&number))
	if number < 170000 {
		t.Skip("needs max_notify_queue_pages, of PostgreSQL 17")
	}
	s = start(t, "-c", "max_notify_queue_pages=64")
	culprit, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	s.outlasts(t, func() {
		for _, sql := range []string{"LISTEN x", "BEGIN", "SELECT 1"} {
			_, err := culprit.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		for n := 7000; n > 0; n -= 6999 { // first what is large, then what fits into the rest
			for err = nil; err == nil; {
				_, err = s.Exec(t.Context(), `SELECT pg_notify('x', repeat('x', $1::int) || clock_timestamp()::text)`, n)
			}
			var answer *pgconn.PgError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, "54000", answer.Code)
		}
	})

	// A hand-over that nobody is told of has the queue shortened, once its cause has gone.
	require.NoError(t, culprit.Close(t.Context()))
	_, err = s.Exec(t.Context(), `NOTIFY x`)
	require.ErrorContains(t, err, "54000", "it stays full")
	a := s.asker(t)
	a.granted(request("a", long))
	waiter := a.waits("b", long)
	a.release("a")
	a.granted(waiter)
	_, err = s.Exec(t.Context(), `NOTIFY x`)
	require.NoError(t, err)
}

// A connection that was made while the way led to a standby, or while new sessions had settings with which
// nothing works, is not used for ever.
func TestSessionsThatRefuseAreMadeAgain(t *testing.T) {
	for _, setting := range []string{"default_transaction_read_only = on", "default_transaction_isolation = 'serializable'"} {
		t.Run(setting, func(t *testing.T) {
			s := begin(t)
			var bad atomic.Bool
			s.Pool = s.pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 2
				c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					if !bad.Load() {
						return nil
					}
					_, err := conn.Exec(ctx, `SET `+setting)
					return err
				}
			})
			d := s.asker(t)
			bad.Store(true)
			var calls sync.WaitGroup
			for range 2 { // as many as there are connections
				calls.Go(func() {
					_, err := d.Acquire(t.Context(), request("holder", long))
					assert.Error(t, err)
				})
			}
			calls.Wait()
			bad.Store(false)
			holder := request("holder", long)
			require.Eventually(t, func() bool {
				holder.Ask++
				g, err := d.Acquire(t.Context(), holder)
				return err == nil && g.Status == driver.Granted
			}, patience, 10*time.Millisecond, "sessions live for an hour")
			for range 4 {
				require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease("holder", long)})[0])
			}
		})
	}
}

// A schema that is restored, or a setting that is tried, ends no wait of a client that was served. One that
// was not is told at once.
func TestSchemaThatIsAwayForAWhileIsWaitedFor(t *testing.T) {
	s := own(t)
	a, b := s.asker(t), s.asker(t)
	a.granted(request("holder", long))
	rename := func(sql string) {
		_, err := s.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	rename(`ALTER SCHEMA holdfast RENAME TO away`)
	waiter := request("waiter", long)
	waiter.Wait = true
	_, err := a.Acquire(t.Context(), waiter)
	require.ErrorIs(t, err, driver.ErrTransient, "FOUL: it ends what waits")
	require.ErrorContains(t, err, "holdfast migrate")
	_, err = b.Acquire(t.Context(), waiter)
	require.Error(t, err)
	require.NotErrorIs(t, err, driver.ErrTransient)
	rename(`ALTER SCHEMA away RENAME TO holdfast`)
	waiter.Ask++
	require.Equal(t, driver.Queued, a.ask(waiter).Status)
}
