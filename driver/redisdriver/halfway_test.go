package redisdriver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A user that lacks a right may not wait, but it takes the lock from nobody: what is refused has
// changed nothing.
func TestRefusedWaiterLeavesTheHolderAlone(t *testing.T) {
	s := redistest.Real(t)
	for _, right := range []string{"+hset", "+hmget", "+hdel", "+pexpire", "+del", "+set"} {
		t.Run(right, func(t *testing.T) {
			name := "x" + right
			root := redisdriver.New(s.Client(t))
			defer root.Close()
			held := &driver.Request{Kind: driver.Mutex, Name: name, Token: "held", Ask: 1, TTL: time.Minute}
			_, err := root.Acquire(t.Context(), held)
			require.NoError(t, err)

			rights := slices.DeleteFunc(documentedRights(t), func(r string) bool { return r == right })
			poor := user(t, s, "app"+right[1:], rights)
			wants := &driver.Request{Kind: driver.Mutex, Name: name, Token: "wants", Ask: 1, TTL: time.Minute, Wait: true, Wake: func(driver.Grant) {}}
			_, err = poor.Acquire(t.Context(), wants)
			t.Logf("answered: %v", err) // +hdel is not needed for that
			other := &driver.Request{Kind: driver.Mutex, Name: name, Token: "other", Ask: 1, TTL: time.Minute}
			g, err := root.Acquire(t.Context(), other)
			require.NoError(t, err)
			require.NotEqual(t, driver.Granted, g.Status, "two hold it")
			lease := driver.Lease{Kind: driver.Mutex, Name: name, Token: "held", TTL: time.Minute}
			require.NoError(t, root.Renew(t.Context(), []driver.Lease{lease})[0])
		})
	}
}
