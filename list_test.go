package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestListShowsWhatIsInUse(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) { listsWhatIsInUse(t, l.Near(), l.Far()) })
	t.Run("memory", func(t *testing.T) {
		store := memdriver.New()
		a, b := holdfast.Open(store), holdfast.Open(store)
		listsWhatIsInUse(t, a, b)
		require.NoError(t, errors.Join(a.Close(), b.Close()))
	})
}

func listsWhatIsInUse(t *testing.T, a, b *holdfast.Client) {
	ctx := t.Context()
	none, err := b.List(ctx, "")
	require.NoError(t, err)
	require.Empty(t, none)

	writer, err := a.RWMutex("job:b", holdfast.WithHolder("it")).Lease(ctx)
	require.NoError(t, err)
	mutex, err := a.Mutex("job:b").Lease(ctx)
	require.NoError(t, err)
	permits, err := a.Semaphore("job:a", 5).Lease(ctx, 2)
	require.NoError(t, err)
	other, err := a.Mutex("other").Lease(ctx)
	require.NoError(t, err)
	waits, cancel := context.WithCancel(ctx)
	waited := make(chan error)
	go func() { _, err := b.RWMutex("job:b").Lease(waits); waited <- err }()
	for {
		info, err := a.RWMutex("job:b").Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, driver.RWMutex, info.Kind)
		if len(info.Queue) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}

	infos, err := b.List(ctx, "job:")
	require.NoError(t, err)
	type lock struct {
		kind             driver.Kind
		name             string
		holders, waiters int
	}
	var got []lock
	for _, i := range infos {
		got = append(got, lock{i.Kind, i.Name, len(i.Holders), len(i.Queue)})
	}
	assert.Equal(t, []lock{{driver.Semaphore, "job:a", 1, 0}, {driver.Mutex, "job:b", 1, 0}, {driver.RWMutex, "job:b", 1, 1}}, got)
	assert.EqualValues(t, 2, infos[0].Holders[0].Weight)
	assert.Equal(t, "it", infos[2].Holders[0].Holder)
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	all, err := b.List(ctx, "")
	require.NoError(t, err)
	assert.Len(t, all, 4)
	for _, l := range []*holdfast.Lease{writer, mutex, permits, other} {
		require.NoError(t, l.Release(ctx))
	}
	require.Eventually(t, func() bool { // the reader that gave up may have been granted the lock just before
		all, err := b.List(ctx, "")
		return err == nil && len(all) == 0
	}, 10*time.Second, time.Millisecond)
}

func TestListShowsTheOtherLocksBesideAForeignKey(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		lease := l.Lease(c, "x")
		foreign := l.Key("foreign")
		require.NoError(t, l.Direct.RPush(t.Context(), foreign, "y").Err())
		defer l.Direct.Del(context.Background(), foreign)
		require.NoError(t, l.Direct.Expire(t.Context(), foreign, time.Minute).Err())
		infos, err := c.List(t.Context(), "")
		var failed *holdfast.LockError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "foreign", failed.Name)
		require.Len(t, infos, 1)
		assert.Equal(t, "x", infos[0].Name)
		l.GiveBack(lease)
	})
}

// A hundred thousand held locks would be as many trips otherwise.
func TestListLooksAtManyLocksInACall(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const n = 600
		near, far := l.Near(), l.Far()
		var leases []*holdfast.Lease
		for i := range n {
			leases = append(leases, l.Lease(near, fmt.Sprint("job:", i)))
		}
		infos, err := far.List(t.Context(), "job:1") // whose script is known then
		require.NoError(t, err)
		require.Len(t, infos, 111)
		l.Link.Delay(5 * time.Millisecond)
		calls := l.Count(func(cmd []string) bool { return strings.EqualFold(cmd[0], "evalsha") })
		infos, err = far.List(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, infos, n)
		require.Less(t, int(calls.Load()), n/10)
		l.GiveBack(leases...)
	})
}

// stubborn is a store that cannot say who holds its locks at the first time, and blind one that never can.
type stubborn struct {
	*memdriver.Driver
	failed bool
}

func (s *stubborn) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if !s.failed {
		s.failed = true
		return driver.Info{}, driver.ErrTransient
	}
	return s.Driver.Inspect(ctx, k, name)
}

type blind struct{ driver.Driver }

func TestListWaitsOutTroubleAndSaysWhatAStoreCannotDo(t *testing.T) {
	c := holdfast.Open(&stubborn{Driver: memdriver.New()})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	infos, err := c.List(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, infos, 1)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, c.Close())
	_, err = c.List(t.Context(), "")
	require.ErrorIs(t, err, holdfast.ErrClosed)

	c = holdfast.Open(blind{memdriver.New()})
	_, err = c.List(t.Context(), "")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, c.Close())
}

// plenty is a store with so many locks that to list them takes for as long as each of its answers, one
// after the other. Of those of an odd number it never says anything, if it is stuck.
type plenty struct {
	driver.Driver
	locks int
	each  time.Duration
	stuck bool
}

func (p plenty) List(_ context.Context, _ string, found func(driver.Kind, string) error) error {
	for i := range p.locks {
		time.Sleep(p.each)
		if err := found(driver.Mutex, strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

func (p plenty) Inspect(ctx context.Context, _ driver.Kind, name string) (driver.Info, error) {
	if n, _ := strconv.Atoi(name); p.stuck && n%2 == 1 {
		return driver.Info{}, driver.ErrTransient
	}
	return driver.Info{Name: name, Holders: []driver.Holder{{Holder: "it"}}}, nil
}

// A store that answers is not in trouble, however much it has to say. One of which a part fails is.
func TestListThatTakesLongIsNoOutage(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprintf("stuck=%v", stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(lab.Log)
				c := holdfast.Open(plenty{memdriver.New(), 20, time.Second, stuck}, holdfast.WithOutageWait(5*time.Second),
					holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
				defer func() { require.NoError(t, c.Close()) }()
				all, err := c.List(t.Context(), "")
				if stuck {
					require.ErrorIs(t, err, holdfast.ErrUnavailable)
					require.Contains(t, log.String(), "still waiting for the store")
					return
				}
				require.NoError(t, err)
				require.Len(t, all, 20)
				require.Empty(t, log.String())
			})
		})
	}
}
