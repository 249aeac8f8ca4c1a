package redlock

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. Each node gets the whole batch. A lease goes on if a
// majority says so: also one that was restarted, for what it remembers is true.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = redisscript.Classify(err)
		}
		return errs
	}
	var batch []driver.Lease
	var which []int
	limit := d.timeout
	for i, l := range leases {
		if errs[i] = d.lasting(l.TTL); errs[i] == nil {
			batch, which = append(batch, l), append(which, i)
			limit = min(limit, d.limit(l.TTL))
		}
	}
	if len(batch) == 0 {
		return errs
	}

	var mu sync.Mutex
	answers := make([][]error, len(d.nodes))
	d.each(ctx, limit, d.nodes, func(ctx context.Context, n *node) {
		of, err := call(ctx, d, n, limit, func(ctx context.Context) ([]error, error) { return n.Renew(ctx, batch), nil })
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		answers[n.i] = of
	}, d.settled)
	mu.Lock()
	defer mu.Unlock()
	for j, i := range which {
		errs[i] = d.renewed(answers, j)
	}
	return errs
}

// renewed is what the nodes say of lease j of a batch.
func (d *Driver) renewed(answers [][]error, j int) error {
	errs := make([]error, len(d.nodes))
	held, lost := 0, 0
	for i, of := range answers {
		errs[i] = errUnheard
		if of != nil {
			errs[i] = of[j]
		}
		switch {
		case errs[i] == nil:
			held++
		case errors.Is(errs[i], driver.ErrNotHeld):
			lost++
		}
	}
	switch {
	case held >= d.majority():
		return nil
	case len(d.nodes)-lost < d.majority():
		return driver.ErrNotHeld
	}
	return noMajority(errs)
}
