package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Whatever the nodes answer, a call returns, and a grant rests on the ask of its request.
func FuzzReplies(f *testing.F) {
	granted := []byte{9, 4, 1, 3, 1, 100, 1, 0, 1, 1, 9, 2, 1, 100, 1, 0}
	busy := []byte{9, 5, 1, 1, 1, 9, 1, 0, 1, 0, 1, 0}
	f.Add(granted, granted, granted)
	f.Add(granted, granted, busy)
	f.Add(granted, busy, []byte{})
	f.Add(granted, []byte{9, 4, 1, 3, 1, 50, 1, 0, 1, 9, 9, 2, 1, 0, 1, 1}, []byte{5, 2})
	f.Add([]byte{9, 1, 1, 0}, []byte{0}, []byte{8, 1, 1, 1, 'a', 'b', 'c', 'd'})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		ctx := t.Context()
		var nodes []driver.Driver
		for _, replies := range [][]byte{a, b, c} {
			nodes = append(nodes, redisdriver.New(redistest.Replies(t, replies)))
		}
		d := redlock.New(nodes, redlock.WithDelayedRestart(0), redlock.WithTimeout(100*time.Millisecond))
		defer func() { require.NoError(t, d.Close()) }()
		r := &driver.Request{Kind: driver.RWMutex, Name: "x", Token: "t", Ask: 1, TTL: time.Second}
		g, err := d.Acquire(ctx, r)
		switch {
		case err != nil:
			require.NotEqual(t, driver.Granted, g.Status)
		case g.Status == driver.Granted:
			require.EqualValues(t, 1, g.Ask)
		}
		l := driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}
		require.Len(t, d.Renew(ctx, []driver.Lease{l, l}), 2)
		if i, ok := driver.As[driver.Inspector](d); ok {
			_, _ = i.Inspect(ctx, r.Kind, r.Name)
		}
		if i, ok := driver.As[driver.Downgrader](d); ok {
			_ = i.Downgrade(ctx, l, 1)
		}
		if i, ok := driver.As[driver.Forcer](d); ok {
			_ = i.ForceRelease(ctx, r.Kind, r.Name)
		}
		l.Unsettled = true
		_ = d.Release(ctx, l)
	})
}
