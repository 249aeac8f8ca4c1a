package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// odd is a node that says something else than it should, and does nothing.
type odd struct {
	driver.Driver
	says atomic.Pointer[error]
}

func (o *odd) Unwrap() driver.Driver { return o.Driver }

func (o *odd) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if says := o.says.Load(); says != nil {
		return driver.Grant{}, *says
	}
	return o.Driver.Acquire(ctx, r)
}

func (o *odd) Release(ctx context.Context, l driver.Lease) error {
	if says := o.says.Load(); says != nil {
		return *says
	}
	return o.Driver.Release(ctx, l)
}

// What nodes say that nobody has heard of is waited out, and what they are known to say again is not.
func TestUnknownAnswersOfAMajorityAreWaitedOut(t *testing.T) {
	unknown := errors.New("upstream failure")
	refused := errors.Join(errors.New("a key of another type"), driver.ErrNotExecuted)
	for name, c := range map[string]struct {
		says  error
		nodes int
		waits bool
	}{
		"unknown of two":   {unknown, 2, true},
		"unknown of three": {unknown, 3, true},
		"refused by all":   {refused, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var nodes []driver.Driver
				var odds []*odd
				for range 3 {
					o := &odd{Driver: memdriver.New()}
					odds, nodes = append(odds, o), append(nodes, o)
				}
				say := func(says *error) {
					for _, o := range odds[:c.nodes] {
						o.says.Store(says)
					}
				}
				d := redlock.New(nodes, redlock.WithDelayedRestart(0))
				locks := holdfast.Open(d, holdfast.WithTTL(10*time.Second))
				held, err := locks.Mutex("held").Lease(t.Context())
				require.NoError(t, err)
				say(&c.says)
				leased, released := make(chan error, 1), make(chan error, 1)
				go func() {
					l, err := locks.Mutex("x").Lease(t.Context())
					if err == nil {
						err = l.Release(t.Context())
					}
					leased <- err
				}()
				if c.waits {
					go func() { released <- held.Release(t.Context()) }()
				}
				time.Sleep(5 * time.Second)
				select {
				case err := <-leased:
					require.False(t, c.waits, "FOUL: the wait has ended: %v", err)
					require.ErrorIs(t, err, c.says)
				case err := <-released:
					t.Fatalf("FOUL: the release has ended: %v", err)
				default:
					require.True(t, c.waits, "FOUL: it waits for what is known to last")
				}
				say(nil)
				if c.waits {
					require.NoError(t, <-leased)
					require.NoError(t, <-released)
				}
				require.NoError(t, locks.Close())
				require.NoError(t, d.Close())
			})
		})
	}
}
