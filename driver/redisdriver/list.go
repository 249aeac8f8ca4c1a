package redisdriver

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// scanned is how many keys a SCAN looks at, so that it blocks the server for less than a
// millisecond.
const scanned = 1000

// List implements [driver.Lister]. It looks at every key of the server, or of all masters of
// a Cluster, by SCAN, for which the user needs that right.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	var mu sync.Mutex // the masters of a Cluster answer at the same time
	seen := map[string]bool{}
	scan := func(ctx context.Context, node *redis.Client) error { return d.scan(ctx, node, prefix, &mu, seen, f) }
	if cluster, ok := d.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, scan)
	}
	return d.scan(ctx, d.rdb, prefix, &mu, seen, f)
}

// scan calls f with the locks of one server that have not been seen. SCAN may return a key
// twice, and two servers have it while its slot moves.
func (d *Driver) scan(ctx context.Context, node redis.Cmdable, prefix string, mu *sync.Mutex, seen map[string]bool, f func(driver.Kind, string) error) error {
	base := d.prefix + format
	pattern := literally.Replace(base) + "*:" + literally.Replace(prefix) + "*"
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, pattern, scanned).Result()
		if err != nil {
			return redisscript.Classify(err)
		}
		mu.Lock()
		for _, key := range keys {
			kind, name, _ := strings.Cut(strings.TrimPrefix(key, base), ":")
			if !slices.Contains(kinds, driver.Kind(kind)) || !strings.HasPrefix(name, prefix) || seen[key] {
				continue
			}
			seen[key] = true
			if err := f(driver.Kind(kind), name); err != nil {
				mu.Unlock()
				return err
			}
		}
		mu.Unlock()
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

var kinds = []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}

// literally takes from the characters of a pattern what they mean there.
var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
