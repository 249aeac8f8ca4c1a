package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// retention is how long a lock leaves something in Redis after its last use.
const retention = time.Minute

// keys looks at what the servers have.
type keys struct {
	stage *stage

	mu      sync.Mutex
	eternal []string // keys that had no TTL
}

func newKeys(s *stage) *keys { return &keys{stage: s} }

// watch looks for keys without a TTL until stop is closed.
func (k *keys) watch(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(500 * time.Millisecond):
		}
		for key, left := range k.scan() {
			if left == -1 {
				k.mu.Lock()
				k.eternal = append(k.eternal, key)
				k.mu.Unlock()
			}
		}
	}
}

// scan returns the keys of the workers and how long they live. -1 is for ever. Keys
// that a server in trouble does not tell are left out.
func (k *keys) scan() map[string]time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found := map[string]time.Duration{}
	for _, s := range k.stage.servers {
		var names []string
		for it := s.admin.Scan(ctx, 0, prefix+":*", 1000).Iterator(); it.Next(ctx); {
			names = append(names, it.Val())
		}
		lives := make([]*redis.DurationCmd, len(names))
		_, _ = s.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range names {
				lives[i] = p.PTTL(ctx, name)
			}
			return nil
		})
		for i, name := range names {
			if left, err := lives[i].Result(); err == nil && left != -2 {
				found[name] = max(left, found[name])
				if left == -1 {
					found[name] = -1
				}
			}
		}
	}
	return found
}

// judge returns the keys that had no TTL, and those that are there although nobody has used
// their lock for longer than the retention. Locks that were in use while the clock was an
// hour ahead are left out: they live for that hour.
func (k *keys) judge(all []*op, events []event) (eternal, forgotten []string) {
	var ahead windows
	for _, e := range events {
		if e.fault.set == times {
			ahead = append(ahead, [2]int64{e.start, e.end + after})
		}
	}
	used := map[string]int64{}
	exempt := map[string]bool{}
	for _, o := range all {
		key := prefix + ":2:" + string(o.kind) + ":" + o.lock
		last := max(o.invoked, o.returned, o.believed, o.gave)
		used[key] = max(used[key], last)
		exempt[key] = exempt[key] || ahead.touch(o.invoked, last)
	}
	now := clock()
	for key, left := range k.scan() {
		if exempt[key] || strings.Contains(key, ":wake:") {
			continue
		}
		idle := time.Duration(now - used[key])
		if idle > retention+afterlife || left > retention+afterlife {
			forgotten = append(forgotten, key)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.Sort(k.eternal)
	return slices.Compact(k.eternal), forgotten
}

// afterlife is how long a worker that was killed may have used a lock: its lease or its wait.
const afterlife = 4 * ttl
