package redisdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// everything is how much there is to hold of an RWMutex: for each reader 1, for a
// writer all of it. Of a Mutex there is 1.
const everything = 1 << 30

func weight(r *driver.Request) int64 {
	switch {
	case r.Kind == driver.Semaphore:
		return r.Weight
	case r.Shared || r.Kind == driver.Mutex:
		return 1
	}
	return everything
}

func limit(r *driver.Request) int64 {
	switch r.Kind {
	case driver.Semaphore:
		return r.Limit
	case driver.Mutex:
		return 1
	}
	return everything
}

// Downgrade implements [driver.Downgrader].
func (d *Driver) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	switch {
	case l.Kind == driver.RWMutex:
		weight = 1
	case l.Kind != driver.Semaphore:
		return redisscript.Unsupported("redisdriver", l.Kind)
	case weight < 1:
		return redisscript.Refusal(fmt.Errorf("redisdriver: a weight of %d", weight))
	}
	status, err := d.untilDone(ctx, downgradeScript, l.Kind, l.Name, l.Token, weight)
	switch {
	case err == nil && status == statusNeither:
		err = driver.ErrNotHeld
	case err == nil && status == statusOwned:
		err = redisscript.Refusal(fmt.Errorf("redisdriver: a hold with an owner cannot be downgraded: %w", errors.ErrUnsupported))
	}
	return err
}

// Resize implements [driver.Resizer].
func (d *Driver) Resize(ctx context.Context, name, token string, limit int64) error {
	if limit < 1 || limit > driver.MaxLimit {
		return redisscript.Refusal(fmt.Errorf("redisdriver: a limit of %d", limit))
	}
	_, err := d.untilDone(ctx, resizeScript, driver.Semaphore, name, token, limit)
	return err
}
