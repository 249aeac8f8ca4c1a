package redisscript

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// many is how many calls must be under way for it to pay to send them together. With
	// 8 callers a pipeline is slower than a connection for each, with 64 twice as fast.
	many = 16
	// fresh is how recent the last answer must be. A pipeline has one connection: if that
	// hangs, those who come later must not hang with it.
	fresh = 100 * time.Millisecond
)

// lanes has pipelines overlap: while the server runs the scripts of one, the callers of
// another get their answers and come again. With go-redis' one pipeline at a time, as long
// as it gets, server and callers wait for each other in turns, which costs a quarter of the
// throughput. The order of callers does not matter: each has one script under way.
var lanes = &redis.AutoPipelineOptions{MaxBatchSize: 32, MaxConcurrentBatches: 3, Unordered: true}

// Together runs scripts for many callers. When many are under way at a time it lets
// go-redis send them in pipelines (see [redis.Client.AutoPipeline]), else each on its own.
// It does so only on a [redis.Client]: on a Cluster a frozen node would hold up what is for
// the others.
type Together struct {
	rdb  redis.UniversalClient
	can  *redis.Client // nil if it cannot
	off  atomic.Bool
	busy atomic.Int32
	last atomic.Int64 // when an answer came, after start
}

var start = time.Now()

// NewTogether returns a Together that sends through rdb.
func NewTogether(rdb redis.UniversalClient) *Together {
	t := &Together{rdb: rdb}
	t.last.Store(-int64(fresh)) // nothing was answered yet
	if c, ok := rdb.(*redis.Client); ok {
		t.can = c
	}
	return t
}

// Batch says whether scripts may be sent in pipelines. By default they may.
func (t *Together) Batch(on bool) { t.off.Store(!on) }

// Run is as the function Run.
func (t *Together) Run(ctx context.Context, call Call) (*Command, error) {
	n := t.busy.Add(1)
	defer t.busy.Add(-1)
	c, err := Run(ctx, t.by(n), call)
	if err == nil {
		t.last.Store(int64(time.Since(start)))
	}
	return c, err
}

// by returns what to send with, while n calls are under way.
func (t *Together) by(n int32) processor {
	if n < many || t.can == nil || t.off.Load() || time.Since(start)-time.Duration(t.last.Load()) > fresh {
		return t.rdb
	}
	opts := lanes
	if t.can.Options().AutoPipelineOptions != nil {
		opts = nil // the user has said what it should be like
	}
	auto, err := t.can.AutoPipelineWithOptions(opts) // go-redis keeps it, and ends it with the client
	if err != nil {
		return t.rdb
	}
	return auto
}
