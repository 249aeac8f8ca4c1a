package behavior

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// Circles is the part of [Run] that is about package deadlock.
func Circles(t *testing.T, open Open) {
	(&suite{T: t, open: open, lock: fmt.Sprintf("circles-%x", rand.Uint64()), queue: new(atomic.Int32)}).endsCircles()
}

// endsCircles holds package deadlock to its promise: a circle has one victim and one report. A store
// that shows no tags has none, and each client says so once.
func (s *suite) endsCircles() {
	const n = 3
	shows := s.showsTags()
	var log lab.Log
	var clients []*holdfast.Client
	for range n {
		c := s.client()
		c.AddHook(deadlock.New(c, deadlock.WithPause(200*time.Millisecond), deadlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		clients = append(clients, c)
	}
	said := func(text string) int { return strings.Count(log.String(), text) }
	for range 2 {
		ctx, giveUp := context.WithTimeout(s.Context(), lab.Ages/2)
		defer giveUp()
		var held, all sync.WaitGroup
		var victims, others atomic.Int32
		held.Add(n)
		for i, c := range clients {
			all.Go(func() {
				err := c.Mutex(fmt.Sprint(s.lock, i)).Do(ctx, func(ctx context.Context) error {
					held.Done()
					held.Wait()
					return c.Mutex(fmt.Sprint(s.lock, (i+1)%n)).Do(ctx, func(context.Context) error { return nil })
				})
				if errors.Is(err, holdfast.ErrDeadlock) {
					victims.Add(1)
				} else if err != nil {
					others.Add(1)
				}
			})
		}
		if !shows {
			assert.Eventually(s, func() bool { return said("deadlocks are not found") == n }, lab.Ages/2, 10*time.Millisecond)
			time.Sleep(time.Second)
			giveUp()
			all.Wait()
			assert.Equal(s, n, said("deadlocks are not found"), "once for each client")
			assert.Zero(s, said("holdfast: deadlock"))
			continue
		}
		all.Wait()
		require.EqualValues(s, 1, victims.Load(), log.String())
		require.Zero(s, others.Load())
	}
	if shows {
		assert.Equal(s, 2, said(`"holdfast: deadlock"`), log.String())
	}
}

// tagger gives leases a tag.
type tagger struct{ holdfast.HookBase }

func (tagger) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		op.Holding = func(ctx context.Context, _ int64) context.Context { return holdfast.WithHolderTag(ctx, "t") }
		return next(ctx, op)
	}
}

// showsTags reports whether Inspect shows the tag of a holder.
func (s *suite) showsTags() bool {
	c := s.client()
	c.AddHook(tagger{})
	l := s.take(c.Mutex(s.lock).Lease)
	defer s.release(l)
	require.NoError(s, l.Renew(s.Context()))
	info, err := c.Mutex(s.lock).Inspect(s.Context())
	return err == nil && len(info.Holders) == 1 && info.Holders[0].Tag != ""
}
