package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

func TestRequestsThatNoStoreCanServeAreRefused(t *testing.T) {
	good := driver.Request{Kind: driver.Semaphore, Name: "x", Token: "t", TTL: time.Second, Weight: 2, Limit: 3}
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*driver.Request){
		"kind":             func(r *driver.Request) { r.Kind = "barrier" },
		"no name":          func(r *driver.Request) { r.Name = "" },
		"long name":        func(r *driver.Request) { r.Name = strings.Repeat("x", driver.MaxName+1) },
		"no token":         func(r *driver.Request) { r.Token = "" },
		"token of two":     func(r *driver.Request) { r.Token = "a b" },
		"long owner":       func(r *driver.Request) { r.Owner = strings.Repeat("x", driver.MaxOwner+1) },
		"short TTL":        func(r *driver.Request) { r.TTL = driver.MinTTL - 1 },
		"long TTL":         func(r *driver.Request) { r.TTL = driver.MaxTTL + 1 },
		"no weight":        func(r *driver.Request) { r.Weight = 0 },
		"no limit":         func(r *driver.Request) { r.Limit = 0 },
		"limit beyond all": func(r *driver.Request) { r.Limit = driver.MaxLimit + 1 },
	} {
		r := good
		spoil(&r)
		err := r.Check()
		require.ErrorIs(t, err, driver.ErrNotExecuted, name)
		require.Equal(t, name == "kind", errors.Is(err, errors.ErrUnsupported), name)
	}
}

func TestShareOfALock(t *testing.T) {
	for _, c := range []struct {
		r             driver.Request
		weight, limit int64
	}{
		{driver.Request{Kind: driver.Mutex}, 1, 1},
		{driver.Request{Kind: driver.RWMutex}, driver.Everything, driver.Everything},
		{driver.Request{Kind: driver.RWMutex, Shared: true}, 1, driver.Everything},
		{driver.Request{Kind: driver.Semaphore, Weight: 2, Limit: 3}, 2, 3},
	} {
		weight, limit := c.r.Share()
		require.Equal(t, []int64{c.weight, c.limit}, []int64{weight, limit}, "%+v", c.r)
	}
}
