package pgdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// pair is a primary whose commits wait for a standby, and the link between them.
type pair struct {
	store
	standby *pgtest.Server
	link    *wire.Wire
}

func startPair(t *testing.T) *pair {
	t.Helper()
	s := start(t, "-c", "max_connections=200", "-c", "wal_sender_timeout=1s")
	link, dsn := s.Through(t)
	p := &pair{store: s, link: link}
	p.standby = s.Standby(dsn, "-c", "hot_standby=on", "-c", "wal_receiver_timeout=0")
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '*'`,
		`ALTER SYSTEM SET client_min_messages = error`, // Its warnings are not for everybody to switch off.
		`SELECT pg_reload_conf()`,
	} {
		_, err := s.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	p.inSync(t)
	return p
}

// inSync waits until commits wait for the standby, which is there.
func (p *pair) inSync(t *testing.T) {
	t.Helper()
	p.eventually(t, `SELECT count(*) = 1 AND bool_and(sync_state = 'sync') AND current_setting('synchronous_standby_names') <> '' FROM pg_stat_replication`)
}

// eventually waits until the primary answers a question with yes.
func (p *pair) eventually(t *testing.T, sql string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var yes bool
		return p.QueryRow(context.Background(), sql).Scan(&yes) == nil && yes
	}, patience, 5*time.Millisecond, sql)
}

// cut parts the standby from the primary.
func (p *pair) cut() { p.link.Silence(true) }

// promote makes the standby a primary, and returns it.
func (p *pair) promote(t *testing.T) store {
	t.Helper()
	next := store{Server: p.standby}
	next.Pool = next.pool(t)
	_, err := next.Exec(t.Context(), `SELECT pg_promote()`)
	require.NoError(t, err)
	return next
}

// free has the primary do without its standby.
func (p *pair) free(t *testing.T) {
	for _, sql := range []string{`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`} {
		_, err := p.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
}

// end ends the wait for the standby of all transactions that are at it, over and over, until
// the test calls what it returns.
func (p *pair) end(t *testing.T, by string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	conn, err := p.Acquire(t.Context())
	require.NoError(t, err)
	go func() {
		defer close(done)
		defer conn.Release()
		for ctx.Err() == nil {
			_, _ = conn.Exec(context.Background(), `SELECT `+by+`(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'`)
			time.Sleep(time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// ways are those to reach the primary.
func (p *pair) ways(t *testing.T) map[string]func(*testing.T) *pgxpool.Pool {
	by := func(dsn func(*testing.T) string) func(t *testing.T) *pgxpool.Pool {
		return func(t *testing.T) *pgxpool.Pool {
			d := dsn(t)
			return p.pool(t, func(c *pgxpool.Config) {
				other, err := pgxpool.ParseConfig(d)
				require.NoError(t, err)
				*c = *other
				c.MaxConns = 8
			})
		}
	}
	return map[string]func(*testing.T) *pgxpool.Pool{
		"direct":           by(func(*testing.T) string { return p.DSN() }),
		"session-pool":     by(func(t *testing.T) string { return p.Bouncer(t, "session", 40) }),
		"transaction-pool": by(func(t *testing.T) string { return p.Bouncer(t, "transaction", 10) }),
	}
}

// quarrel is a holder of some locks and a client that waits for them.
type quarrel struct {
	name           string
	holder, waiter *pgdriver.Driver
	told           chan driver.Grant // what they hear
	rw, sem        *driver.Request
	waiters        []*driver.Request
}

func (q *quarrel) ask(verb string) *driver.Request {
	r := request(q.name+verb, time.Minute)
	r.Name, r.Wake = q.name+verb, func(g driver.Grant) { q.told <- g }
	return r
}

func (q *quarrel) named(verb string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: q.name + verb, Token: q.name + verb, TTL: time.Minute}
}

// begin has the locks held and waited for, while all is well.
func (q *quarrel) begin(t *testing.T) {
	for _, verb := range []string{"renew", "attach", "raise", "release", "force"} {
		asker{t, q.holder}.granted(q.ask(verb))
	}
	q.rw, q.sem = q.ask("downgrade"), q.ask("resize")
	q.rw.Kind, q.sem.Kind, q.sem.Weight, q.sem.Limit = driver.RWMutex, driver.Semaphore, 1, 1
	for _, verb := range []string{"release", "force"} {
		q.waiters = append(q.waiters, q.ask(verb))
	}
	for _, r := range []*driver.Request{q.rw, q.sem} {
		w := *r
		asker{t, q.holder}.granted(r)
		w.Shared = r == q.rw
		q.waiters = append(q.waiters, &w)
	}
	for _, w := range q.waiters {
		w.Wait = true
		w.Token += "-waiter"
		require.Equal(t, driver.Queued, asker{t, q.waiter}.ask(w).Status)
	}
}

// quiet waits until nobody has news.
func (q *quarrel) quiet(t *testing.T, check func(driver.Grant)) {
	for {
		select {
		case g := <-q.told:
			check(g)
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

// perform does all that a lock can be used for, and fails the test if anybody is told to have
// more than before.
func (q *quarrel) perform(t *testing.T) {
	q.quiet(t, func(driver.Grant) {})
	ctx := t.Context()
	for i := range 3 {
		r := q.ask(fmt.Sprint("acquire", i))
		for range 3 { // also if the token has it already
			_, err := q.holder.Acquire(ctx, r)
			require.ErrorIs(t, err, driver.ErrTransient)
			require.NotErrorIs(t, err, driver.ErrNotExecuted)
			r.Ask++
		}
	}
	for range 3 {
		require.Error(t, q.holder.Renew(ctx, []driver.Lease{q.named("renew")})[0])
		to := q.ask("attach")
		to.Token += "2"
		_, err := q.waiter.Attach(ctx, q.named("attach"), to)
		require.Error(t, err)
		_, err = q.holder.RaiseFence(ctx, q.named("raise"), 1<<60, 1)
		require.Error(t, err)
	}
	// These may be done: they make nobody a holder who believes it.
	_ = q.holder.Release(ctx, q.named("release"))
	_ = q.holder.ForceRelease(ctx, driver.Mutex, q.name+"force")
	_ = q.holder.Downgrade(ctx, driver.Lease{Kind: driver.RWMutex, Name: q.rw.Name, Token: q.rw.Token, TTL: time.Minute}, 1)
	_ = q.holder.Resize(ctx, q.sem.Name, "change"+q.name, 2)
	q.quiet(t, func(g driver.Grant) {
		require.NotEqual(t, driver.Granted, g.Status, "FOUL: news of a grant that only the primary knows")
	})
	for _, w := range q.waiters {
		g, err := q.waiter.Acquire(ctx, w)
		require.True(t, err != nil || g.Status == driver.Queued, "FOUL: %v is %v", w.Token, g.Status)
	}
}

// Whatever becomes of the wait for a standby that does not answer, nobody is told to have what
// only the primary knows.
func TestNothingThatNoStandbyConfirmedIsTrusted(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	p := startPair(t)
	defer p.free(t)
	ends := map[string][]*quarrel{"pg_cancel_backend": nil, "pg_terminate_backend": nil}
	for way, open := range p.ways(t) {
		holder, waiter := pgdriver.New(open(t)), pgdriver.New(open(t))
		t.Cleanup(func() { _, _ = holder.Close(), waiter.Close() })
		for by := range ends {
			if by == "pg_terminate_backend" && way != "direct" && !redistest.Again() {
				continue // A pooler shows nothing else of it.
			}
			q := &quarrel{name: way + "-" + by + "-", holder: holder, waiter: waiter, told: make(chan driver.Grant, 100)}
			q.begin(t)
			ends[by] = append(ends[by], q)
		}
	}
	p.cut()
	for by, quarrels := range ends {
		stop := p.end(t, by)
		for _, q := range quarrels {
			t.Run(q.name, q.perform)
		}
		stop()
	}
}

// It asks at once, and finds that it has the lock.
func TestWaiterWhoseGrantAStandbyConfirmsIsServedAtOnce(t *testing.T) {
	s := beginWith(t, unconfirmed)
	a, b := s.clients(t)
	for range 5 {
		require.Less(t, handOver(t, a, b), 30*time.Second, "a heartbeat would take 100 s")
	}
}

// The link between a primary and its standby is cut, and the standby is made a primary. Whoever
// waits at the old one must not be granted what those at the new one get when a lease is over.
func TestFailoverToASynchronousStandbyMakesNoSecondHolder(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	p := startPair(t)
	defer p.free(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const ttl = 5 * time.Second
	client := func(pool *pgxpool.Pool) *holdfast.Client {
		c := holdfast.Open(pgdriver.New(pool), holdfast.WithTTL(ttl))
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	type scene struct {
		name       string
		held       *holdfast.Lease
		old        chan *holdfast.Lease // granted by the old primary
		a, b       *holdfast.Client
		next       *holdfast.Lease
		unlockedBy func(*scene)
	}
	released := func(s *scene) { // with a context that ends
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_ = s.held.Release(ctx)
	}
	forced := func(s *scene) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_ = s.a.Mutex(s.name).ForceUnlock(ctx)
	}
	var scenes []*scene
	for way, open := range p.ways(t) {
		a, b := client(open(t)), client(open(t))
		for verb, f := range map[string]func(*scene){"release": released, "force": forced} {
			s := &scene{name: verb + " " + way, a: a, b: b, old: make(chan *holdfast.Lease, 1), unlockedBy: f}
			var err error
			s.held, err = a.Mutex(s.name, holdfast.WithoutRenewal()).Lease(ctx)
			require.NoError(t, err)
			go func() {
				if l, err := b.Mutex(s.name).Lease(ctx); err == nil {
					s.old <- l
				}
			}()
			require.Eventually(t, func() bool {
				info, err := a.Mutex(s.name).Inspect(ctx)
				return err == nil && len(info.Queue) == 1
			}, patience, time.Millisecond)
			scenes = append(scenes, s)
		}
	}
	time.Sleep(ttl / 2) // The waiters have asked again, so that what they ask for is fresh.
	p.cut()
	next := client(p.promote(t).Pool)
	for _, s := range scenes {
		go s.unlockedBy(s)
	}
	time.Sleep(time.Second)
	stop := p.end(t, "pg_cancel_backend")
	defer stop()
	for _, s := range scenes {
		var err error
		s.next, err = next.Mutex(s.name).Lease(ctx)
		require.NoError(t, err)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, s := range scenes {
			select {
			case l := <-s.old:
				require.Error(t, l.Err(), "FOUL: %s: two holders", s.name)
			default:
			}
			require.NoError(t, s.next.Err())
		}
	}
}
