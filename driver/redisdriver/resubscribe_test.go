package redisdriver_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// holdUp holds up the answer to the next script.
type holdUp struct {
	handled chan struct{} // closed when the server has answered
	goOn    chan struct{}
}

func (h *holdUp) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *holdUp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *holdUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		script := cmd.Name() == "evalsha" || cmd.Name() == "eval"
		if script && !strings.Contains(fmt.Sprint(cmd.Args()[3]), ":wake:") { // a ping goes its way
			close(h.handled)
			<-h.goOn
		}
		return err
	}
}

// Rule 13. Whenever there is a subscription again all waiters ask, for a grant may have been
// pushed when nobody listened. So does one whose answer is under way just then.
func TestWaiterWhoseAnswerIsUnderWayIsNotForgottenByAResubscription(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		direct := s.Client(t)
		holder := join(t, open(t, direct, s), "holder", ttl)
		holder.must(driver.Granted)
		e := newEars(t, s)
		w := join(t, warm(t, e, s.Prefix()), "waiter", ttl)
		t.Cleanup(func() { require.NoError(t, w.d.Close()) })
		w.must(driver.Queued)
		subscribed(t, direct, s, 1)

		e.cut()
		subscribed(t, direct, s, 0)
		require.Eventually(t, func() bool { return !w.d.Hears() }, 10*time.Second, time.Millisecond) // the server knows of it earlier
		late := &holdUp{make(chan struct{}), make(chan struct{})}
		e.UniversalClient.AddHook(late)
		answer := make(chan driver.Grant)
		go func() { answer <- w.ask() }()
		<-late.handled
		e.mend()
		require.Eventually(t, w.d.Hears, 10*time.Second, time.Millisecond)
		close(late.goOn)
		after := (<-answer).RetryAfter
		require.Positive(t, after)
		require.Less(t, after, 50*time.Millisecond)
	})
}
