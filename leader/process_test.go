//go:build unix

package leader_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/leader"
)

const (
	ttl    = 3 * time.Second
	before = 20 * time.Second // far more than anything here takes
)

func init() { crew.Register("candidate", candidate) }

// said is a report of a candidate: it leads, or does no more.
type said struct {
	Fence int64
	Lost  bool
}

// candidate is a process that stands for election, and says so when its terms begin and end.
func candidate() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	locks := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("REDIS_PREFIX")), holdfast.WithTTL(ttl))
	e := leader.New(locks, "x", holdfast.WithHolder(os.Getenv("NAME")))
	for {
		term, err := e.Campaign(context.Background())
		if err != nil {
			panic(err)
		}
		crew.Report(said{Fence: term.Fence()})
		<-term.Context().Done()
		crew.Report(said{Lost: errors.Is(context.Cause(term.Context()), holdfast.ErrLost)})
	}
}

func child(t *testing.T, s *redistest.Server, name string) *crew.Process {
	return crew.Start(t, "candidate", "NAME="+name,
		"REDIS_NETWORK="+s.Network(), "REDIS_ADDR="+s.Addr(), "REDIS_PREFIX="+s.Prefix())
}

// fenceOf returns the fence of a process that leads now.
func fenceOf(t *testing.T, p *crew.Process) int64 {
	t.Helper()
	fence := crew.Hear[said](p).Fence
	require.NotZero(t, fence)
	return fence
}

func TestLeaderThatIsKilledOrPausedIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	l := lab.New(t, s)
	l.Retention = time.Minute // the children have the usual one
	watch := leader.New(l.Near(), "x")
	leads := func(name string) int64 {
		t.Helper()
		now, err := watch.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, name, now.Name)
		return now.Fence
	}
	a := child(t, s, "a")
	first := fenceOf(t, a)
	b := child(t, s, "b")
	l.UntilQueue("x", 1)
	assert.Equal(t, first, leads("a"))

	// Paused, it is replaced; when it goes on it says so and is next.
	stopped := time.Now()
	a.Pause()
	second := fenceOf(t, b)
	t.Logf("replaced after %v", time.Since(stopped))
	assert.Greater(t, second, first, "FOUL: fences went back")
	leads("b")
	a.Resume()
	require.Equal(t, said{Lost: true}, crew.Hear[said](a))
	l.UntilQueue("x", 1)
	leads("b")

	// Killed, it is replaced by the first.
	b.Kill()
	third := fenceOf(t, a)
	assert.Greater(t, third, second, "FOUL: fences went back")
	leads("a")
	a.Kill()
}

// The master dies, and with it the knowledge of who led. Candidates are elected at the new
// one, with larger fences, and the old leader has heard of its loss at the latest when its
// lease is over.
func TestElectionsGoOnAfterAFailover(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const ttl = 2 * time.Second // or a waiter that the new master knows of may lead on there
	s := redistest.NewSentinels(t)
	type term struct {
		name  string
		fence int64
	}
	terms := make(chan term, 100)
	var lead [2]atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(lead))
	for i := range lead {
		locks := holdfast.New(s.Client(t), holdfast.WithTTL(ttl))
		t.Cleanup(func() { _ = locks.Close() })
		e := leader.New(locks, "x")
		go func() {
			done <- e.Run(ctx, func(ctx context.Context) error {
				lease, err := leaseFence(ctx)
				assert.NoError(t, err)
				lead[i].Store(true)
				terms <- term{strconv.Itoa(i), lease}
				<-ctx.Done()
				lead[i].Store(false)
				return context.Cause(ctx)
			})
		}()
	}
	next := func() term {
		select {
		case now := <-terms:
			return now
		case <-time.After(2 * before):
			t.Fatal("nobody is elected")
			return term{}
		}
	}
	first := next()
	old := s.Master(t)
	for _, replica := range s.Servers {
		if replica != old {
			replica.Detach(t, old) // so that it knows nothing of what follows
		}
	}
	watch := holdfast.New(s.Client(t), holdfast.WithTTL(ttl))
	t.Cleanup(func() { _ = watch.Close() })
	require.NoError(t, watch.Mutex("x").ForceUnlock(t.Context()))
	second := next()
	assert.Greater(t, second.fence, first.fence, "FOUL: fences went back")

	old.Kill()
	for _, replica := range s.Servers {
		if replica != old {
			require.NoError(t, replica.Client(t).ConfigSet(t.Context(), "masterauth", "").Err())
		}
	}
	s.AwaitNewMaster(t, old)
	third := next()
	assert.Greater(t, third.fence, second.fence, "FOUL: fences went back")
	assert.Eventually(t, func() bool { return lead[0].Load() != lead[1].Load() }, 2*ttl, 10*time.Millisecond, "one leads")
	cancel()
	for range lead {
		require.ErrorIs(t, <-done, context.Canceled)
	}
}

func leaseFence(ctx context.Context) (int64, error) {
	fences, err := fence.Of(ctx)
	if err != nil {
		return 0, err
	}
	return fences[0].Number, nil
}

// While the password is another one nobody leads, and nobody leaves: whoever comes back first when
// it is right again leads.
func TestRotatedPasswordEndsNoCandidate(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := lab.New(t, s)
	l.Remember()
	user := l.User("app", "~*", "&*", "+@all")
	ctx, stop := context.WithCancel(t.Context())
	led := make(chan int64, 100)
	ended := make(chan error, 3)
	var leads atomic.Int32
	for range 3 {
		locks := l.Open(s.Client(t, user), holdfast.WithTTL(ttl))
		l.Ready(locks)
		go func() {
			ended <- leader.New(locks, "x").Run(ctx, func(ctx context.Context) error {
				leads.Add(1)
				defer leads.Add(-1)
				fences, err := fence.Of(ctx)
				assert.NoError(t, err)
				led <- fences[0].Number
				<-ctx.Done()
				return nil
			})
		}()
	}
	first := <-led
	require.NoError(t, l.Direct.Do(t.Context(), "ACL", "SETUSER", "app", "resetpass", ">other").Err())
	require.NoError(t, l.Direct.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	l.Until("the leader is lost", func() bool { return leads.Load() == 0 })
	select {
	case err := <-ended:
		t.Fatal("a candidate has left: ", err)
	case <-time.After(2 * time.Second):
	}
	l.User("app", "~*", "&*", "+@all")
	require.Greater(t, lab.Promptly(t, before, func() int64 { return <-led }), first, "FOUL: fences went back")
	stop()
	for range 3 {
		err := lab.Promptly(t, before, func() error { return <-ended })
		require.True(t, err == nil || errors.Is(err, context.Canceled), err) // nil is from whoever led
	}
}
