package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// The suite must not ask for more than the contract: the least that a driver can be
// passes, and what it is not asked needs an ability.
func TestLeastDriverPasses(t *testing.T) {
	passed := 0
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			skipped := false
			synctest.Test(t, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				s := &store{locks: map[string]hold{}, dead: map[string]bool{}}
				c.Run(t, func(*testing.T) driver.Driver { return client{s} })
			})
			if skipped {
				t.Skip("for the reason above") // A bubble keeps that to itself.
			}
			passed++
		})
	}
	require.Greater(t, passed, 50, "almost nothing is left for the least driver")
}

// A store that is told the deadline of a request, such as etcd, may end it a moment before the
// context does. The claim of the token must go all the same, or all others wait for it.
func TestTokenGivesUpThoughTheStoreEndsItsRequestFirst(t *testing.T) {
	for _, c := range drivertest.Cases() {
		if strings.Contains(c.Name, "ThatGiveUp") {
			t.Run(c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := memdriver.New()
					c.Run(t, func(*testing.T) driver.Driver { return hasty{d} }, drivertest.Queue)
				})
			})
		}
	}
}

// hasty is a store that does what is asked, and says that there was no time for it if there is
// little.
type hasty struct{ driver.Driver }

func (h hasty) Unwrap() driver.Driver { return h.Driver }

func (h hasty) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := h.Driver.Acquire(ctx, r)
	if end, timed := ctx.Deadline(); err == nil && timed && time.Until(end) < time.Second {
		return driver.Grant{}, fmt.Errorf("%w: request timed out", driver.ErrTransient)
	}
	return g, err
}

func TestCaseNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range drivertest.Cases() {
		require.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
	}
}

// store is locks in memory, without a queue, fences, or anything else optional.
type store struct {
	mu    sync.Mutex
	locks map[string]hold
	dead  map[string]bool
}

type hold struct {
	token   string
	expires time.Time
}

type client struct{ *store }

func (c client) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrNotExecuted, err)
	}
	if r.Kind != driver.Mutex || r.Owner != "" {
		return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrNotExecuted, errors.ErrUnsupported)
	}
	if r.Name == "" || len(r.Name) > driver.MaxName || r.Token == "" ||
		strings.ContainsAny(r.Token, " \n") || r.TTL < driver.MinTTL || r.TTL > driver.MaxTTL {
		return driver.Grant{}, driver.ErrNotExecuted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead[r.Name+" "+r.Token] {
		return driver.Grant{}, driver.ErrNotHeld
	}
	if h := c.alive(r.Name); h.token != "" && h.token != r.Token {
		return driver.Grant{Status: driver.Busy}, nil
	}
	c.locks[r.Name] = hold{r.Token, time.Now().Add(r.TTL)}
	return driver.Grant{Status: driver.Granted, Ask: r.Ask}, nil
}

func (c client) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = c.end(l, time.Now().Add(l.TTL))
		}
	}
	return errs
}

func (c client) Release(ctx context.Context, l driver.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.end(l, time.Time{})
}

func (c client) Close() error { return nil }

// end moves the end of a lease, or makes it past.
func (c client) end(l driver.Lease, expires time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Unsettled {
		c.dead[l.Name+" "+l.Token] = true
	}
	if c.alive(l.Name).token != l.Token {
		return driver.ErrNotHeld
	}
	c.locks[l.Name] = hold{l.Token, expires}
	return nil
}

func (s *store) alive(name string) hold {
	if h := s.locks[name]; time.Now().Before(h.expires) {
		return h
	}
	return hold{}
}
