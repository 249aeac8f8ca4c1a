package redisdriver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A message that is said again has a seal, so it must do no harm: an old grant would have a
// waiter believe that it has left the queue.
func TestGrantThatIsSaidAgainIsIgnored(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		holds(t, d, "holder", time.Hour)
		var heard []driver.Grant
		w := join(t, d, "waiter", time.Hour)
		w.req.Wake = func(g driver.Grant) { heard = append(heard, g) }
		w.must(driver.Queued)
		w.must(driver.Queued) // ask 2
		d.Dispatch(d.Seal("granted waiter 0 7 1"))
		require.Empty(t, heard, "no ask")
		grant := d.Seal("granted waiter 2 7 1")
		d.Dispatch(grant)
		require.Len(t, heard, 1)
		d.Dispatch(grant)
		require.Len(t, heard, 1, "again")
	})
}

// Nobody's seal is ours but our own, and it is of what it stands under.
func TestNewsWithoutItsSealIsIgnored(t *testing.T) {
	d, other := redisdriver.New(redistest.Replies(t, []byte{9, 4, 1, 3, 1, 100, 1, 0, 1, 1})), redisdriver.New(redistest.Replies(t, nil))
	heard := 0
	r := &driver.Request{Kind: driver.Mutex, Name: "x", Token: "t", Ask: 1, TTL: time.Second, Wake: func(driver.Grant) { heard++ }}
	_, err := d.Acquire(t.Context(), r)
	require.NoError(t, err)
	good := d.Seal("lost t")
	seal := good[strings.LastIndexByte(good, '\n'):]
	for _, message := range []string{
		"", "\n", "lost t", "lost t\n", "lost t" + strings.ToUpper(seal), "lost t" + seal[:30], "lost t" + seal + "\n",
		"ask t" + seal, "lost t\nlost t" + seal, "lost t\n" + seal, seal + "\nlost t", other.Seal("lost t"), good + "\nlost t",
	} {
		d.Dispatch(message)
		require.Zero(t, heard, "%q", message)
	}
	d.Dispatch(good)
	require.Equal(t, 1, heard)
	require.NoError(t, d.Close())
	require.NoError(t, other.Close())
}
