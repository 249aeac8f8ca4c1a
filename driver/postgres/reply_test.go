package pgdriver_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// network loses the answer to the next message that contains a text.
type network struct{ text atomic.Pointer[string] }

type link struct {
	net.Conn
	*network
	lose atomic.Bool
}

func (l *link) Write(b []byte) (int, error) {
	if text := l.text.Load(); text != nil && bytes.Contains(b, []byte(*text)) && l.text.CompareAndSwap(text, nil) {
		l.lose.Store(true)
	}
	return l.Conn.Write(b)
}

// Read has the server do what it was asked, and breaks the connection as it answers.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.lose.Load() && n > 0 {
		_ = l.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// The server has committed, and nobody heard of it.
func TestRequestWhoseReplyWasLostMayBeRepeated(t *testing.T) {
	s := begin(t)
	var faulty network
	s.Pool = s.pool(t, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &link{Conn: conn, network: &faulty}, err
		}
	})
	a := s.asker(t)
	lost := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, driver.ErrTransient)
		require.NotErrorIs(t, err, driver.ErrNotExecuted)
		require.Nil(t, faulty.text.Load(), "the reply was not lost")
	}
	for _, token := range []string{"first", "second", "third"} { // not all with a statement to be prepared
		r := request(token, long)
		faulty.text.Store(&token)
		_, err := a.Acquire(t.Context(), r)
		lost(err)
		info, err := a.Inspect(t.Context(), r.Kind, r.Name)
		require.NoError(t, err)
		g := a.ask(r)
		require.Equal(t, driver.Granted, g.Status)
		if len(info.Holders) > 0 { // else it was the answer to the preparation
			require.Equal(t, info.Holders[0].Fence, g.Fence)
		}

		faulty.text.Store(&token)
		lost(a.Renew(t.Context(), []driver.Lease{lease(token, long)})[0])
		require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease(token, long)})[0])

		faulty.text.Store(&token)
		lost(a.Release(t.Context(), lease(token, long)))
		if err := a.Release(t.Context(), lease(token, long)); err != nil {
			require.ErrorIs(t, err, driver.ErrNotHeld)
		}
	}
	require.Greater(t, a.granted(request("next", long)), int64(0))
}
