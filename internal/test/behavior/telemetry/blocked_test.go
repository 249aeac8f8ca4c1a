package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// The span of a wait tells who was in the way, in another process or in this one.
func TestSpanOfAWaitSaysWhoWasInTheWay(t *testing.T) {
	for _, own := range []bool{false, true} {
		lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
			c, other := l.Near(), l.Near()
			if own {
				other = c
			}
			e := newTelemetry(t)
			c.AddHook(e.hook)
			at := holdfast.WithHolder("the holder")
			free := l.Take(c.Mutex("x", at).Lease)
			assert.NotContains(t, attrsOf(e.ended("acquire mutex")), attrBlockedBy)
			l.GiveBack(free)

			held := l.Take(other.Mutex("x", at).Lease)
			e.spans.Reset()
			w := l.Ask(c.Mutex("x", at).Lease)
			if own {
				synctest.Wait() // it asks the store only when the turn is over
			} else {
				l.Settle()
			}
			l.GiveBack(held)
			l.GiveBack(w.Granted(lab.Soon))
			span := attrsOf(e.ended("acquire mutex"))
			require.Contains(t, span, attrBlockedBy)
			assert.Equal(t, "the holder", span[attrBlockedBy])
			assert.Equal(t, held.Fence(), span["holdfast.blocked_by_fencing_token"])
		})
	}
}

// So does that of one who does not get the lock, nor asks the store: another goroutine of its process
// has it, or waits for it already.
func TestSpanOfAWaitInAProcessSaysWhoWasInTheWay(t *testing.T) {
	for _, own := range []bool{false, true} {
		lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
			c := l.Mates()
			e := newTelemetry(t)
			known(l, c.Mutex("x"))
			c.AddHook(e.hook)
			mu := c.Mutex("x", holdfast.WithHolder("the holder"))
			at := mu
			if !own {
				at = l.Far().Mutex("x", holdfast.WithHolder("the holder"))
			}
			held := l.Take(at.Lease)
			var first *lab.Pending
			if !own {
				first = l.Ask(mu.Lease)
				l.Settle()
			}
			e.spans.Reset()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := mu.Lease(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			span := attrsOf(e.ended("acquire mutex"))
			assert.Equal(t, "the holder", span[attrBlockedBy])
			assert.Equal(t, held.Fence(), span["holdfast.blocked_by_fencing_token"])
			assert.EqualValues(t, int64(0), span["holdfast.attempts"], "it has asked nobody")
			l.GiveBack(held)
			if first != nil {
				l.GiveBack(first.Granted(lab.Soon))
			}
		})
	}
}

// known lets the store know a lock, and some time pass. One that it does not know has but one fence, and
// who waits for another asks it.
func known(l *lab.Lab, mu *holdfast.Mutex) {
	l.T.Helper()
	mu.Lock()
	mu.Unlock()
	time.Sleep(time.Millisecond)
}

// slow is a store that takes its time for each ask.
type slow struct{ driver.Driver }

func (s slow) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	time.Sleep(10 * time.Millisecond)
	return s.Driver.Acquire(ctx, r)
}

// So does that of one who came before the first of its process had an answer, so that nobody there knew:
// when it gives up, and when the first has passed the lock on to it.
func TestSpanOfAWaitThatBeganUnknowingSaysWhoWasInTheWay(t *testing.T) {
	for _, passed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			c, other := holdfast.Open(slow{store}), holdfast.Open(store)
			defer func() { assert.NoError(t, errors.Join(c.Close(), other.Close())) }()
			e := newTelemetry(t)
			c.AddHook(e.hook)
			held, err := other.Mutex("x", holdfast.WithHolder("the holder")).Lease(t.Context())
			require.NoError(t, err)
			mu := c.Mutex("x", holdfast.WithHolder("the first"))
			first := make(chan *holdfast.Lease)
			go func() {
				l, err := mu.Lease(context.Background())
				assert.NoError(t, err)
				first <- l
			}()
			synctest.Wait()
			if passed {
				go func() {
					time.Sleep(time.Second)
					assert.NoError(t, held.Release(context.Background()))
					assert.NoError(t, (<-first).Release(context.Background()))
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			l, err := mu.Lease(ctx)
			var span map[attribute.Key]any
			for _, ended := range e.spans.Ended() { // the first of its process ends before
				if ended.Name() == "acquire mutex" {
					span = attrsOf(ended)
				}
			}
			want := "the holder"
			if passed {
				require.NoError(t, err)
				assert.NoError(t, l.Release(t.Context()))
				want = "the first"
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, held.Fence(), span["holdfast.blocked_by_fencing_token"])
				assert.NoError(t, held.Release(t.Context()))
				assert.NoError(t, (<-first).Release(t.Context()))
			}
			assert.Equal(t, want, span[attrBlockedBy])
			assert.Contains(t, span, attribute.Key("holdfast.blocked_by_fencing_token"))
		})
	}
}

const attrBlockedBy = attribute.Key("holdfast.blocked_by")
