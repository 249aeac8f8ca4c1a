package setnx_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

var request, lease = foreigntest.Request, foreigntest.Lease

func TestWaiterAsksAsOftenAsWithPollSays(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for want, d := range map[time.Duration]*setnx.Driver{
			100 * time.Millisecond: setnx.New(rdb),
			5 * time.Millisecond:   setnx.New(rdb, setnx.WithPoll(5*time.Millisecond)),
			time.Second:            setnx.New(rdb, setnx.WithPoll(time.Second)),
		} {
			_, err := d.Acquire(t.Context(), request(name, "me"))
			require.NoError(t, err)
			r := request(name, "you")
			r.Wait = true
			g, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Busy, g.Status)
			require.Equal(t, want, g.RetryAfter)
			require.NoError(t, d.Release(t.Context(), lease(name, "me")))
		}
	})
	require.Panics(t, func() { setnx.WithPoll(0) })
}

func TestKeyIsTheNameAndValueIsTheToken(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for short, d := range map[string]*setnx.Driver{name: setnx.New(rdb), "a": setnx.New(rdb, setnx.WithPrefix(s.Prefix()))} {
			g, err := d.Acquire(t.Context(), request(short, "me"))
			require.NoError(t, err)
			require.Equal(t, driver.Grant{Status: driver.Granted, Ask: 1}, g)
			require.Equal(t, "me", rdb.Get(t.Context(), name).Val())
			require.InDelta(t, 10*time.Second, rdb.PTTL(t.Context(), name).Val(), float64(5*time.Second))
			require.Greater(t, rdb.PTTL(t.Context(), name).Val(), 10*time.Second)
			require.NoError(t, d.Release(t.Context(), lease(short, "me")))
			require.Empty(t, s.Keys(t, s.Prefix()))
		}
	})
}
