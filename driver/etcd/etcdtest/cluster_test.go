package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leader that is killed costs some time, but no lease, and gives nobody a second one.
func TestLockOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	r := newReferee(t)
	members := cluster(t, 3)
	crew := make([]*contender, 4)
	for i := range crew {
		crew[i] = r.contender(kinds[0], endpoints(members)...)
		crew[i].tell("hammer")
	}
	for range 2 {
		r.advances(20)
		old := leader(t, members)
		old.Kill()
		r.advances(20)
		old.restart()
	}
	for _, c := range crew {
		c.Kill()
	}
	require.GreaterOrEqual(t, r.decide(), 80)
}

// A leader that is paused is replaced by another, and wakes up believing that it still leads. A
// holder that knows only this one must not trust what it says of its lease.
func TestHolderOfAPausedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	r := newReferee(t)
	members := cluster(t, 3)
	for range 2 {
		old := leader(t, members)
		a, b := r.contender(kinds[0], old.endpoint), r.contender(kinds[0], others(members, old)...)
		a.tell("lock")
		a.hears("in")
		b.tell("lock")
		time.Sleep(ttl / 2)
		old.pause()
		b.hears("in")
		old.resume()
		a.hears("lost")
		b.tell("unlock")
		b.hears("out")
		a.Kill()
		b.Kill()
	}
	require.Equal(t, 4, r.decide())
}

func others(members []*member, but *member) (all []string) {
	for _, m := range members {
		if m != but {
			all = append(all, m.endpoint)
		}
	}
	return all
}

// A server that is killed and started again has forgotten nothing: the holder keeps the lock,
// the waiter its place, and fences increase.
func TestLockOutlivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	r := newReferee(t)
	server := cluster(t, 1)[0]
	a, b, c := r.contender(kinds[0], server.endpoint), r.contender(kinds[0], server.endpoint), r.contender(kinds[0], server.endpoint)
	look := inspector(t, kinds[0], server.endpoint)
	a.tell("lock")
	a.hears("in")
	for i, w := range []*contender{b, c} {
		w.tell("lock")
		require.Eventually(t, func() bool { return len(look().Queue) == i+1 }, patience, 10*time.Millisecond)
	}
	server.Kill()
	server.restart()
	a.tell("unlock")
	b.hears("in")
	b.tell("unlock")
	c.hears("in")
	require.Equal(t, 3, r.decide())
}
