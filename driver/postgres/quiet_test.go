package pgdriver_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// pings counts those that go the way of all news, and so rouse all that listen.
type pings struct{ atomic.Int64 }

func (p *pings) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "'ping'") {
		p.Add(1)
	}
	return ctx
}
func (p *pings) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A client that waits for long looks after its own session, and leaves those of others asleep. It
// still hears at once, and still finds out that the session is silent.
func TestWaiterRousesNobodyWhileNothingHappens(t *testing.T) {
	redistest.SoakOnly(t)
	s := begin(t)
	var sent pings
	s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &sent })
	link, dsn := s.Through(t)
	ears, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	d := s.asker(t, pgdriver.WithListenConfig(ears))
	reasons, news := make(chan string, 10), make(chan driver.Grant, 10)
	d.OnReconnect(func(reason string) { reasons <- reason })
	waits := func(holder, token string) {
		d.granted(request(holder, long))
		waiter := request(token, long)
		waiter.Wake = func(g driver.Grant) { news <- g }
		d.listens(waiter)
	}
	waits("holder", "waiter")
	looks := map[time.Time]bool{} // of the session after itself
	require.Eventually(t, func() bool {
		var last time.Time
		err := s.QueryRow(t.Context(), `SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT pg_notification_queue_usage()'`).Scan(&last)
		looks[last] = looks[last] || err == nil
		delete(looks, time.Time{})
		return len(looks) >= 2
	}, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, sent.Load(), "the first proves that news comes in")
	require.Empty(t, reasons)
	d.release("holder")
	hears(t, news)
	d.release("waiter")

	waits("holder2", "waiter2")
	link.Silence(true)
	require.Equal(t, "silent", soon(t, reasons))
	link.Silence(false)
}
