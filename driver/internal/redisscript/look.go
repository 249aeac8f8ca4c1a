package redisscript

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// endless is the time left of a lease that has no end.
const endless = time.Duration(math.MaxInt64)

// shape is an error about an answer that no script of ours gives.
func shape(name string, answer any) error {
	return fmt.Errorf("%s: unexpected answer from a script: %v", name, answer)
}

// Asked reads what the acquire scripts of old forms answer: a status, the rest of the lease that is
// in the way, and if one is, what its key says of the holder.
func (c *Command) Asked(name string) (status, left int64, holder string, err error) {
	reply, err := c.Slice()
	if err != nil {
		return 0, 0, "", err
	}
	ok := len(reply) == 2 || len(reply) == 3
	if ok {
		status, ok = reply[0].(int64)
	}
	if ok {
		left, ok = reply[1].(int64)
	}
	if ok && len(reply) == 3 {
		holder, ok = reply[2].(string)
	}
	if !ok {
		return 0, 0, "", shape(name, reply)
	}
	return status, left, holder, nil
}

// Held reads what the inspect scripts of old forms answer: nothing if the lock is free, else the
// owner and, for each holder, the time left in ms and what the store says of the holder. Of those
// without an end, the time is negative.
func (c *Command) Held(name string) ([]driver.Holder, error) {
	reply, err := c.Slice()
	if err != nil {
		return nil, err
	}
	return Holders(name, reply)
}

// Holders reads such an answer.
func Holders(name string, reply []any) ([]driver.Holder, error) {
	if len(reply) == 0 {
		return nil, nil
	}
	owner, ok := reply[0].(string)
	if !ok || len(reply)%2 == 0 {
		return nil, shape(name, reply)
	}
	var all []driver.Holder
	for i := 1; i < len(reply); i += 2 {
		left, number := reply[i].(int64)
		text, words := reply[i+1].(string)
		if !number || !words {
			return nil, shape(name, reply)
		}
		h := driver.Holder{Holder: text, Owner: owner, TimeLeft: endless}
		if left >= 0 && left < int64(endless/time.Millisecond) {
			h.TimeLeft = time.Duration(left) * time.Millisecond
		}
		all = append(all, h)
	}
	return all, nil
}

// Inspect runs an inspect script for the mutex of that name.
func Inspect(ctx context.Context, rdb redis.UniversalClient, name string, call Call) (driver.Info, error) {
	info := driver.Info{Name: name}
	c, err := Run(ctx, rdb, call)
	if err == nil {
		info.Holders, err = c.Held(call.family)
	}
	return info, err
}

// Shelf is where a driver of an old form finds its locks: among the keys of other programs.
type Shelf struct {
	Prefix string   // of the locks
	Type   string   // of their keys, as the command TYPE says it
	Beside []string // what keys of that type begin with that are ours, and no locks

	// Inspect is a look at the lock of a name, for each of the Kinds. It is nil if every key of that
	// type is a mutex.
	Inspect func(k driver.Kind, name string) Call
	Kinds   []driver.Kind
}

// List is that of [driver.Lister], see [Scan].
func (s Shelf) List(ctx context.Context, rdb redis.UniversalClient, prefix string, f func(k driver.Kind, name string) error) error {
	return Scan(ctx, rdb, Literally(s.Prefix+prefix)+"*", s.Type, func(keys []string) error {
		var names []string
		for _, key := range keys {
			if name, ok := s.name(key); ok {
				names = append(names, name)
			}
		}
		locks, err := s.locks(ctx, rdb, names)
		for _, l := range locks {
			if err == nil {
				err = f(l.kind, l.name)
			}
		}
		return err
	})
}

// name is that of the lock in a key, if it can be one.
func (s Shelf) name(key string) (string, bool) {
	for _, ours := range s.Beside {
		if strings.HasPrefix(key, ours) {
			return "", false
		}
	}
	name := strings.TrimPrefix(key, s.Prefix)
	return name, 0 < len(name) && len(name) <= driver.MaxName
}

type lock struct {
	kind driver.Kind
	name string
}

// locks returns those of the names whose key is a lock, looked at in one pipeline.
func (s Shelf) locks(ctx context.Context, rdb redis.UniversalClient, names []string) ([]lock, error) {
	var locks, all []lock
	var calls []Call
	for _, name := range names {
		if s.Inspect == nil {
			locks = append(locks, lock{driver.Mutex, name})
			continue
		}
		for _, k := range s.Kinds {
			all, calls = append(all, lock{k, name}), append(calls, s.Inspect(k, name))
		}
	}
	if len(calls) == 0 {
		return locks, nil
	}
	for i, c := range RunAll(ctx, rdb, calls) {
		holders, err := c.Held(calls[i].family)
		switch {
		case err == nil && len(holders) > 0:
			locks = append(locks, all[i])
		case err != nil && !foreign(err):
			return nil, Classify(err)
		}
	}
	return locks, nil
}

// foreign reports whether a key is none of a driver: it holds something else, or has a name beside
// which the driver can have no key.
func foreign(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && hasPrefix(err, []string{"WRONGTYPE", "CROSSSLOT"})
}

// atOnce is how many keys a SCAN looks at, so that it blocks the server for less than a
// millisecond.
const atOnce = 1000

// Scan calls visit with the keys that match a pattern, with none twice, until visit fails. It looks
// at every key of the server, or of all masters of a Cluster, by SCAN, for which the user needs
// that right. kind is the type of the keys, as the command TYPE says it, or "" for any.
func Scan(ctx context.Context, rdb redis.UniversalClient, pattern, kind string, visit func(keys []string) error) error {
	var mu sync.Mutex // the masters of a Cluster answer at the same time
	var stopped error
	seen := map[string]bool{} // SCAN may return a key twice, as may two masters while its slot moves
	scan := func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.ScanType(ctx, cursor, pattern, atOnce, kind).Result()
			if err != nil {
				return Classify(err)
			}
			mu.Lock()
			keys = slices.DeleteFunc(keys, func(key string) bool {
				again := seen[key]
				seen[key] = true
				return again
			})
			if stopped == nil {
				stopped = visit(keys)
			}
			err = stopped
			mu.Unlock()
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return scan(ctx, node) })
	}
	return scan(ctx, rdb)
}

// Literally returns the pattern that matches s alone.
func Literally(s string) string { return literally.Replace(s) }

var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
