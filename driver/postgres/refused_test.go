package pgdriver_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// fill has all news refused as by a PostgreSQL whose queue is full: as the transaction commits.
func (s store) fill(t testing.TB) {
	t.Helper()
	_, err := s.Exec(t.Context(), `
		CREATE TABLE public.told (news text);
		GRANT ALL ON public.told TO PUBLIC;
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.told DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.refuse();
		CREATE FUNCTION public.notify(text, _news text) RETURNS void LANGUAGE sql AS 'INSERT INTO public.told VALUES (_news)'`)
	require.NoError(t, err)
	s.notify(t, "pg_notify(", "public.notify(")
}

func (s store) drain(t testing.TB) { s.notify(t, "public.notify(", "pg_notify(") }

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
				s := begin(t)
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
	s := begin(t)
	var sent calls
	quiet := s
	quiet.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &sent })
	a, b := quiet.asker(t), s.asker(t)
	n := 0
	// handOver returns whether the waiter was told within some time.
	handOver := func(within time.Duration) bool {
		n++
		heard := make(chan driver.Grant, 10)
		holder, waiter := request(fmt.Sprint("a", n), long), request(fmt.Sprint("b", n), long)
		waiter.Wait, waiter.Wake = true, func(g driver.Grant) { heard <- g }
		a.granted(holder)
		require.Equal(t, driver.Queued, b.ask(waiter).Status)
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
	_, err := s.Exec(t.Context(), `DROP TRIGGER refuse ON public.told`) // It would be heard, were it told.
	require.NoError(t, err)
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
