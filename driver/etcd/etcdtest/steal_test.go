package etcdtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// ask is a request of a token for one RWMutex, or for reading it.
func ask(token string, shared bool) *driver.Request {
	return &driver.Request{Kind: driver.RWMutex, Name: "rw", Token: token, Ask: 1, TTL: time.Minute, Shared: shared, Wait: true, Fences: 8, Holder: token}
}

func heldBy(r *driver.Request) driver.Lease {
	return driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}
}

func renewed(t *testing.T, d *etcddriver.Driver, r *driver.Request) error {
	t.Helper()
	return d.Renew(t.Context(), []driver.Lease{heldBy(r)})[0]
}

// etcd takes 128 operations in one transaction, or more in transactions within it.
func TestCrowdOfReadersIsStolenFromInOneTransaction(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var seen calls
	d, thief := etcddriver.New(connect(t, endpoint)), etcddriver.New(connect(t, endpoint, seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	defer func() { require.NoError(t, thief.Close()) }()
	last := int64(0)
	const crowd = 150
	for i := range crowd {
		g, err := d.Acquire(t.Context(), ask(fmt.Sprint("r", i), true))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		last = max(last, g.Fence+g.Fences-1)
	}
	waiter := ask("waiter", false)
	_, err := d.Acquire(t.Context(), waiter)
	require.NoError(t, err)

	writes := 0
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 {
			writes++
		}
		return carry()
	})
	r := ask("thief", false)
	g, err := thief.Steal(t.Context(), r)
	require.NoError(t, err)
	require.Greater(t, g.Fence, last)
	require.Equal(t, 1, writes)
	require.NoError(t, renewed(t, thief, r))
	for i := range crowd {
		require.ErrorIs(t, renewed(t, d, ask(fmt.Sprint("r", i), true)), driver.ErrNotHeld)
	}
	info, err := d.Inspect(t.Context(), r.Kind, r.Name)
	require.NoError(t, err)
	require.Len(t, info.Holders, 1)
	require.Len(t, info.Queue, 1)
	require.NoError(t, thief.Release(t.Context(), heldBy(r)))
	waiter.Ask++
	next, err := d.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, next.Status)
	require.Greater(t, next.Fence, g.Fence)
}

// A thief looks before it takes. A holder that got the lock in between loses it, too.
func TestLockThatChangesHandsBeforeItIsStolenIsStolenFromTheNextHolder(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var seen calls
	d, thief := etcddriver.New(connect(t, endpoint)), etcddriver.New(connect(t, endpoint, seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	defer func() { require.NoError(t, thief.Close()) }()
	holder, waiter, r := ask("holder", false), ask("waiter", false), ask("thief", false)
	for _, r := range []*driver.Request{holder, waiter} {
		_, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
	}
	var next driver.Grant
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 && next.Status == 0 {
			require.NoError(t, d.Release(t.Context(), heldBy(holder)))
			var err error
			waiter.Ask++
			next, err = d.Acquire(t.Context(), waiter)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, next.Status)
		}
		return carry()
	})
	g, err := thief.Steal(t.Context(), r)
	require.NoError(t, err)
	require.Greater(t, g.Fence, next.Fence)
	require.ErrorIs(t, renewed(t, d, waiter), driver.ErrNotHeld)
	require.NoError(t, renewed(t, thief, r))
}

// The lease of a reader that has left before the lock is stolen serves another claim.
func TestThiefLeavesTheLeaseAloneOfAReaderThatHasLeft(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var seen calls
	d, thief := etcddriver.New(connect(t, endpoint)), etcddriver.New(connect(t, endpoint, seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	first, last, other := ask("first", true), ask("last", true), ask("other", false)
	other.Name = "another lock"
	for _, r := range []*driver.Request{first, last} {
		_, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
	}
	revoked := make(chan struct{}, 8)
	left := false
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 && !left {
			left = true
			require.NoError(t, d.Release(t.Context(), heldBy(first)))
			_, err := d.Acquire(t.Context(), other)
			require.NoError(t, err)
		}
		err := carry()
		if _, ok := req.(*pb.LeaseRevokeRequest); ok {
			revoked <- struct{}{}
		}
		return err
	})
	_, err := thief.Steal(t.Context(), ask("thief", false))
	require.NoError(t, err)
	select {
	case <-revoked:
	case <-time.After(patience):
		require.Fail(t, "the lease of the reader that was there is kept")
	}
	require.NoError(t, thief.Close())
	require.ErrorIs(t, renewed(t, d, last), driver.ErrNotHeld)
	require.NoError(t, renewed(t, d, other))
	require.NoError(t, d.Release(t.Context(), heldBy(other)))
}

// Thieves that steal from each other, before a waiter, have larger and larger fences, and leave no
// leases behind.
func TestFencesIncreaseFromThiefToThief(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	holder, waiter := ask("holder", false), ask("waiter", false)
	last, err := d.Acquire(t.Context(), holder)
	require.NoError(t, err)
	_, err = d.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	for i := range 20 {
		r := ask(fmt.Sprint("thief", i), false)
		if i%5 == 0 {
			r.Owner = "A"
		}
		g, err := d.Steal(t.Context(), r)
		require.NoError(t, err)
		require.Greater(t, g.Fence, last.Fence+max(last.Fences, 1)-1, "FOUL: a fence that is not the largest")
		last = g
	}
	require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: holder.Kind, Name: holder.Name, Token: "thief19", TTL: holder.TTL}))
	waiter.Ask++
	g, err := d.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.Status)
	require.Greater(t, g.Fence, last.Fence)
	require.NoError(t, d.Release(t.Context(), heldBy(waiter)))
	require.NoError(t, d.Close())
	for _, id := range leases(t, client) {
		left, err := client.TimeToLive(t.Context(), id, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.NotEmpty(t, left.Keys, "a lease of a claim that has gone")
	}
}

// Thieves, waiters and those that release meet in every order. No fence is given twice, the
// store's last word is that of the largest, and nothing is left.
func TestThievesAndWaitersInAnyOrder(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var mu sync.Mutex
	fences := map[int64]string{}
	var all sync.WaitGroup
	for i := range 6 {
		d := etcddriver.New(connect(t, endpoint))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		all.Go(func() {
			for n := range 25 {
				r := ask(fmt.Sprintf("t%d-%d", i, n), false)
				r.Fences = 3
				get := d.Acquire
				if rand.IntN(2) == 0 {
					get = d.Steal
				}
				g, err := get(t.Context(), r)
				if errors.Is(err, driver.ErrNotHeld) {
					continue // a thief has it, before it was known here
				}
				if assert.NoError(t, err) && g.Status == driver.Granted {
					mu.Lock()
					for f := g.Fence; f < g.Fence+max(g.Fences, 1); f++ {
						assert.Empty(t, fences[f], "FOUL: fence %d of %s", f, r.Token)
						fences[f] = r.Token
					}
					mu.Unlock()
				}
				if err := d.Release(t.Context(), heldBy(r)); err != nil {
					assert.ErrorIs(t, err, driver.ErrNotHeld)
				}
			}
		})
	}
	all.Wait()
	client := connect(t, endpoint)
	resp, err := client.Get(t.Context(), "holdfast/lock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, resp.Count)
	d := etcddriver.New(client)
	defer func() { require.NoError(t, d.Close()) }()
	last, err := d.Acquire(t.Context(), ask("last", false))
	require.NoError(t, err)
	for f := range fences {
		require.Greater(t, last.Fence, f, "FOUL: a fence that is not the largest")
	}
}
