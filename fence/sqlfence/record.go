package sqlfence

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/fence"
)

// records is what the connections of a connector know of the table of fences, so that they
// need not look. It may be mistaken: a transaction compares in any case.
type records struct {
	mu   sync.Mutex
	seen map[string]int64              // the fence in the row of a lock
	busy map[fence.Fence]chan struct{} // those that are being recorded
}

// maxSeen bounds the memory. A lock that was forgotten costs a look.
const maxSeen = 10_000

// has reports whether a fence is in the table; for one that is shared, whether there is a row.
func (r *records) has(f fence.Fence) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, ok := r.seen[f.Key()]
	return ok && (f.Shared || seen == f.Number)
}

func (r *records) add(f fence.Fence, seen int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil || len(r.seen) >= maxSeen {
		r.seen = map[string]int64{}
	}
	r.seen[f.Key()] = seen
}

func (r *records) forget(f fence.Fence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, f.Key())
}

// enter reports whether the caller is the one that records a fence, and calls leave. Otherwise
// it has waited for another: two that record the same fence would wait for each other's
// transactions, although neither means to change the row that the other shares.
func (r *records) enter(ctx context.Context, f fence.Fence) (bool, error) {
	r.mu.Lock()
	done, busy := r.busy[f]
	if !busy {
		if r.busy == nil {
			r.busy = map[fence.Fence]chan struct{}{}
		}
		r.busy[f] = make(chan struct{})
	}
	r.mu.Unlock()
	if !busy {
		return true, nil
	}
	select {
	case <-done:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (r *records) leave(f fence.Fence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.busy[f])
	delete(r.busy, f)
}

// settle records the fences that are not in the table yet, each for itself. No transaction may be
// under way: what one has recorded, others could not share before its end, and the holder's own
// statements on other connections would wait for it, possibly for ever.
func (c *conn) settle(ctx context.Context, fences []fence.Fence) error {
	for _, f := range fences {
		if f.Shared && c.sql.seed == "" {
			continue
		}
		if err := c.settleOne(ctx, f); err != nil {
			return failedCheck(f, err)
		}
	}
	return nil
}

func (c *conn) settleOne(ctx context.Context, f fence.Fence) error {
	for !c.records.has(f) {
		mine, err := c.records.enter(ctx, f)
		if err != nil {
			return err
		}
		if mine {
			err = c.lookAndRecord(ctx, f)
			c.records.leave(f)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conn) lookAndRecord(ctx context.Context, f fence.Fence) error {
	seen, found, err := c.compare(ctx, c.sql.look, f)
	switch {
	case err != nil:
		return err
	case found && (f.Shared || seen == f.Number):
	case f.Shared:
		_, err = c.exec(ctx, c.sql.seed, f.Key())
	default:
		seen, err = f.Number, c.record(ctx, f)
	}
	if err == nil {
		c.records.add(f, seen)
	}
	return err
}

// record sets the fence in the table, and keeps the row until the end of the transaction.
func (c *conn) record(ctx context.Context, f fence.Fence) error {
	args := []driver.Value{f.Key()}
	for range c.sql.numbers {
		args = append(args, f.Number)
	}
	result, err := c.exec(ctx, c.sql.record, args...)
	switch {
	case err != nil && c.sql.refuses:
		// Shared as well, since the transaction may look at what was there when it began to read.
		for _, query := range []string{c.sql.look, c.sql.share} {
			if _, _, stale := c.compare(ctx, query, f); errors.Is(stale, fence.ErrStale) {
				return stale
			}
		}
		return err
	case err != nil, c.sql.refuses:
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	if _, _, err := c.compare(ctx, c.sql.look, f); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s has %d", fence.ErrStale, f.Key(), f.Number) // its snapshot is older
}
