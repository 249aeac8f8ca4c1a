package redisscript

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Uptime tells how long the server behind a client has been running, without asking it
// each time.
//
// A server that restarts breaks all its connections. So what the new process says comes
// over a connection that was dialed after the restart. We count the connections that were
// dialed, and ask the server (INFO) only if there are more than there were when we asked
// last. The count is read before we ask: should the server restart just after it has
// answered, then the connection to the new process makes the next count a larger one.
//
// The wrong version counts a connection before it is dialed. One whose dialing began
// before the question, and that came about after a restart, would go unnoticed.
type Uptime struct {
	rdb   *redis.Client // nil if it is no client of one server
	dials atomic.Uint64

	mu      sync.Mutex
	hooked  bool
	counted bool      // dials does count
	asked   uint64    // dials when the server was asked
	began   time.Time // the server was running by then, on our clock; zero if not asked
}

// NewUptime does nothing yet; who never asks pays nothing.
func NewUptime(rdb redis.UniversalClient) *Uptime {
	one, _ := rdb.(*redis.Client)
	return &Uptime{rdb: one}
}

// AtLeast returns how long the server has been running, or a little less. What it has
// answered before the call came from that process or from an earlier one.
func (u *Uptime) AtLeast(ctx context.Context) (time.Duration, error) {
	if u.rdb == nil {
		return 0, Refusal(fmt.Errorf("redis: uptime of more than one server: %w", errors.ErrUnsupported))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.count(ctx); err != nil {
		return 0, err
	}
	if dials := u.dials.Load(); u.began.IsZero() || dials != u.asked {
		up, err := u.ask(ctx)
		if err != nil {
			return 0, Classify(err)
		}
		u.asked, u.began = dials, time.Now().Add(-up)
	}
	return time.Since(u.began), nil
}

// count begins to count, and makes sure that it does: the hooks of a client that was
// copied from another (WithTimeout) are not called when that one dials.
func (u *Uptime) count(ctx context.Context) error {
	if u.counted {
		return nil
	}
	if !u.hooked {
		u.rdb.AddHook((*dialHook)(u))
		u.hooked = true
	}
	before := u.dials.Load()
	own := u.rdb.Subscribe(ctx) // has a connection of its own
	err := own.Ping(ctx)
	_ = own.Close()
	switch {
	case err != nil:
		return Classify(err)
	case u.dials.Load() == before:
		return Refusal(fmt.Errorf("redis: uptime by a client that was copied from another: %w", errors.ErrUnsupported))
	}
	u.counted = true
	return nil
}

// ask returns the least time that the server can have been running.
func (u *Uptime) ask(ctx context.Context) (time.Duration, error) {
	info, err := u.rdb.Info(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "uptime_in_seconds:"); ok {
			seconds, err := strconv.Atoi(text)
			// It is the difference of two times in whole seconds.
			return max(0, time.Duration(seconds-1)*time.Second), err
		}
	}
	return 0, errors.New("redis: INFO does not tell the uptime")
}

// dialHook counts connections.
type dialHook Uptime

func (h *dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		h.dials.Add(1)
		return conn, err
	}
}

func (h *dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
