package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

var request = driver.Request{Kind: driver.Mutex, Name: "m", Token: "t", Ask: 1, TTL: ttl}

// Trouble that may pass by itself is tried again for ever, other trouble is not.
func TestErrorsTellWhetherTheyPass(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	t.Run("closed client", func(t *testing.T) {
		client := connect(t, e)
		d := etcddriver.New(client)
		require.NoError(t, client.Close())
		_, err := d.Acquire(t.Context(), &request)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.ErrorIs(t, err, driver.ErrClosed)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.NoError(t, d.Close())
	})
	t.Run("no server", func(t *testing.T) {
		d := etcddriver.New(connect(t, redistest.FreeAddr(t)))
		began := time.Now()
		_, err := d.Acquire(t.Context(), &request)
		require.ErrorIs(t, err, driver.ErrTransient)
		err = d.Renew(t.Context(), []driver.Lease{{Kind: request.Kind, Name: "m", Token: "t", TTL: ttl}})[0]
		require.ErrorIs(t, err, driver.ErrTransient)
		require.NotErrorIs(t, err, driver.ErrNotHeld)
		require.Less(t, time.Since(began), patience)
		require.NoError(t, d.Close())
	})
	t.Run("key of another program", func(t *testing.T) {
		client := connect(t, e)
		d := etcddriver.New(client, etcddriver.WithPrefix("shared"))
		_, err := client.Put(t.Context(), "shared/lock/mutex/m/config", "x")
		require.NoError(t, err)
		_, err = d.Acquire(t.Context(), &request)
		require.ErrorContains(t, err, `another program keeps something at "shared/lock/mutex/m/config"`)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.NoError(t, d.Close())
	})
}

// Drivers with different prefixes have different locks.
func TestPrefixesDoNotMeet(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	for _, prefix := range []string{"a", "b", "a/lock"} {
		d := etcddriver.New(client, etcddriver.WithPrefix(prefix))
		g, err := d.Acquire(t.Context(), &request)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status, prefix)
		require.NoError(t, d.Close())
	}
}

// A lock that was released leaves nothing in etcd once its driver is closed, and a tombstone goes
// after a minute.
func TestReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	lease := driver.Lease{Kind: request.Kind, Name: request.Name, Token: request.Token, TTL: ttl}
	_, err := d.Acquire(t.Context(), &request)
	require.NoError(t, err)
	require.NoError(t, d.Release(t.Context(), lease))
	require.NoError(t, d.Close())
	require.Empty(t, leases(t, client))

	d = etcddriver.New(client)
	lease.Unsettled = true
	require.ErrorIs(t, d.Release(t.Context(), lease), driver.ErrNotHeld)
	graves := leases(t, client)
	require.Len(t, graves, 1)
	left, err := client.TimeToLive(t.Context(), graves[0])
	require.NoError(t, err)
	require.LessOrEqual(t, left.GrantedTTL, int64(60))
	require.NoError(t, d.Close())
}
