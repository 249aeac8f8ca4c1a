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

// Uptime tells how long the server behind a client has been running, without asking it each
// time.
//
// A server that restarts breaks all its connections. So an answer of the new process comes
// over a connection that was dialed after the restart. We count the connections that were
// dialed. We ask the server (INFO) only if there are more than when we asked last. The
// count is read before we ask. Should the server restart just after it has answered, the
// connection to the new process makes the next count larger.
//
// The wrong version counts a connection before it is dialed. Suppose its dialing began
// before the question, and succeeded after a restart. It would go unnoticed.
//
// The uptime in INFO is a difference of two times of day. If the clock is set forward after
// the server has started, as by NTP after a boot, a young server says that it is old. Redis
// tells only one time that cannot be set: the time that a thread has spent on the
// processor. A thread has existed for at least that time. Another proof is the time that
// has passed here since we first saw the server's run_id, which changes at each start. So
// the server is at least as old as either of them. Its own word for its age is kept apart.
type Uptime struct {
	rdb   *redis.Client // nil if it is no client of one server
	dials atomic.Uint64

	mu      sync.Mutex
	hooked  bool
	counted bool   // dials does count
	asked   uint64 // dials when the server was asked
	run     string // its run_id then; empty if not asked

	// The server was running by then, on our clock: for sure, and as it says.
	sure, said time.Time
}

// NewUptime asks and counts nothing yet, so a caller that never asks pays nothing.
func NewUptime(rdb redis.UniversalClient) *Uptime {
	one, _ := rdb.(*redis.Client)
	return &Uptime{rdb: one}
}

// AtLeast returns how long the server has surely been running, and how long it says, which
// is never less; see redlock.Uptimer. All answers that came before the call are from that
// process or from an earlier one.
func (u *Uptime) AtLeast(ctx context.Context) (sure, said time.Duration, err error) {
	if u.rdb == nil {
		return 0, 0, Refusal(fmt.Errorf("redis: uptime of more than one server: %w", errors.ErrUnsupported))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.count(ctx); err != nil {
		return 0, 0, err
	}
	if dials := u.dials.Load(); u.run == "" || dials != u.asked {
		run, says, worked, err := u.ask(ctx)
		if err != nil {
			return 0, 0, Classify(err)
		}
		now := time.Now()
		if run != u.run {
			u.run, u.sure = run, now
		}
		// A thread keeps the time that it has spent before it became a server.
		if began := now.Add(-min(worked, says)); began.Before(u.sure) {
			u.sure = began
		}
		u.asked, u.said = dials, now.Add(-says)
	}
	sure = time.Since(u.sure)
	return sure, max(sure, time.Since(u.said)), nil
}

// count begins to count, and makes sure that dials are counted. The hooks of a client that
// was copied from another (WithTimeout) are not called when the other client dials.
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

// ask returns which run of the server this is, the least time that it has been running in its
// own opinion, and the time that its main thread has spent on the processor.
func (u *Uptime) ask(ctx context.Context) (run string, says, worked time.Duration, err error) {
	info, err := u.rdb.Info(ctx).Result()
	if err != nil {
		return "", 0, 0, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	run = fields["run_id"]
	seconds, err := strconv.Atoi(fields["uptime_in_seconds"])
	if run == "" || err != nil {
		return "", 0, 0, fmt.Errorf("redis: INFO does not tell the uptime: run_id %q, uptime_in_seconds %q", run, fields["uptime_in_seconds"])
	}
	for _, part := range []string{"used_cpu_sys_main_thread", "used_cpu_user_main_thread"} {
		spent, err := strconv.ParseFloat(fields[part], 64)
		if err != nil { // it is told on Linux only
			break
		}
		worked += time.Duration(spent * float64(time.Second))
	}
	// The uptime is the difference of two times in whole seconds.
	return run, max(0, time.Duration(seconds-1)*time.Second), worked, nil
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
