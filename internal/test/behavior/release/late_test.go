package release_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// A store may forget that a token was released before its last ask arrives. The client
// hears what became of that, and gives it back, whether the answer comes after that of
// the release or before.
func TestGrantToATokenThatWasGivenUpIsGivenBack(t *testing.T) {
	for _, order := range []string{"after the release", "during the release"} {
		t.Run(order, func(t *testing.T) {
			asked, answer := make(chan struct{}), make(chan struct{})
			releases, proceed := make(chan driver.Lease, 8), make(chan struct{}, 8)
			c := lab.WithPuppet(t, lab.Puppet{
				OnAcquire: func(r *driver.Request) (driver.Grant, error) {
					close(asked)
					<-answer
					return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
				},
				OnRelease: func(l driver.Lease) error {
					releases <- l
					<-proceed
					return nil
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			_, err := c.Mutex("x").Lease(ctx)
			require.ErrorIs(t, err, context.Canceled)
			assert.True(t, (<-releases).Unsettled)
			if order == "after the release" {
				proceed <- struct{}{}
				time.Sleep(10 * time.Millisecond) // let it be noted; either order is right
				close(answer)
			} else {
				close(answer)
				time.Sleep(10 * time.Millisecond)
				proceed <- struct{}{}
			}
			select {
			case <-releases:
			case <-time.After(lab.Soon):
				require.FailNow(t, "the grant is nobody's")
			}
			proceed <- struct{}{}
		})
	}
}

// The loss of an outer lease says nothing of the one in hand.
func TestLossOfAnotherLeaseIsNotThatOfThisOne(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		outer, inner := l.Lease(c, "outer"), l.Lease(c, "inner")
		require.NoError(t, l.Near().Mutex("outer").ForceUnlock(t.Context()))
		require.ErrorIs(t, outer.Renew(t.Context()), holdfast.ErrLost)
		err := inner.Renew(outer.Context())
		require.NotErrorIs(t, err, holdfast.ErrLost)
		require.NoError(t, inner.Err())
		require.NoError(t, inner.Release(t.Context()))
	})
}
