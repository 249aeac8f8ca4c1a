package interop_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/driver/setnx"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
)

// A cell of the table is "yes" exactly if that driver has the ability of its row, and no
// ability is left out: a table may lack one that none of its stores has. Drivers tell so by themselves, without a server. Of a queue and the like
// they cannot; there the table says what the conformance test of the driver insists on.
func TestAbilitiesInTheDocumentOfStoresAreThoseOfTheDrivers(t *testing.T) {
	nowhere := func() redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: "localhost:0", MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	pool, err := pgxpool.New(t.Context(), "postgres://localhost:1")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:1"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = etcd.Close() })
	stores := map[string]struct {
		driver      driver.Driver
		conformance string
	}{
		"Redis": {redisdriver.New(nowhere()), "redisdriver"},
		"redlock": {redlock.New([]driver.Driver{
			redisdriver.New(nowhere()), redisdriver.New(nowhere()), redisdriver.New(nowhere()),
		}), "redlock"},
		"postgres":  {pgdriver.New(pool), "postgres"},
		"etcd":      {etcddriver.New(etcd), "etcd/etcdtest"},
		"zookeeper": {zkdriver.New([]string{"localhost:1"}), "zookeeper"},
		"redisson":  {redisson.New(nowhere()), "redisson"},
		"setnx":     {setnx.New(nowhere()), "setnx"},
		"getset":    {getset.New(nowhere()), "getset"},
		"memdriver": {memdriver.New(), "memdriver"},
	}
	for _, s := range stores {
		t.Cleanup(func() { _ = s.driver.Close() })
	}

	// refuses reports whether the driver cannot serve such a request, which it says before it
	// asks its server.
	refuses := func(d driver.Driver, r driver.Request) bool {
		r.Name, r.Token, r.Ask, r.TTL = "jobs", "token", 1, 10*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.Acquire(ctx, &r)
		return errors.Is(err, errors.ErrUnsupported)
	}
	insists := func(folder, ability string) bool {
		source, err := os.ReadFile("../driver/" + folder + "/conformance_test.go")
		require.NoError(t, err)
		return regexp.MustCompile(`(?i)abilities(?: =|:) +\[\]drivertest\.Ability\{[^}]*drivertest\.` + ability + `\b`).Match(source)
	}
	has := func(store, ability string) bool {
		d := stores[store].driver
		switch ability {
		case "rwmutex":
			return !refuses(d, driver.Request{Kind: driver.RWMutex})
		case "semaphore":
			return !refuses(d, driver.Request{Kind: driver.Semaphore, Weight: 1, Limit: 2})
		case "owner":
			return !refuses(d, driver.Request{Kind: driver.Mutex, Owner: "4711"})
		case "queue", "fences", "whose":
			return insists(stores[store].conformance, strings.ToUpper(ability[:1])+ability[1:])
		case "Notifier":
			n, able := driver.As[driver.Notifier](d)
			return able && n.Notices()
		}
		able, known := map[string]bool{
			"Inspector": as[driver.Inspector](d), "Lister": as[driver.Lister](d), "Forcer": as[driver.Forcer](d), "Stealer": as[driver.Stealer](d),
			"Downgrader": as[driver.Downgrader](d), "Attacher": as[driver.Attacher](d), "Resizer": as[driver.Resizer](d),
			"Confirmer": as[driver.Confirmer](d), "Batcher": as[driver.Batcher](d),
			"Router": as[driver.Router](d), "Reporter": as[driver.Reporter](d), "Uptimer": as[redlock.Uptimer](d),
			"FenceRaiser": as[redlock.FenceRaiser](d), "Granular": as[driver.Granular](d),
			"Prompter": as[driver.Prompter](d), "Explainer": as[driver.Explainer](d), "Bounded": as[driver.Bounded](d),
		}[ability]
		require.True(t, known, "this test does not know the ability %q", ability)
		return able
	}

	page, err := os.ReadFile("../docs/stores.md")
	require.NoError(t, err)
	var head []string
	told := map[string]map[string]bool{} // abilities, and the stores in a table that says of them
	var heads []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			head = nil
		case strings.HasPrefix(line, "|-"):
		case cells[1] == "ability":
			head = cells
			heads = append(heads, head[2:]...)
		case head == nil: // It is a table of something else.
		default:
			ability := cells[1]
			if told[ability] == nil {
				told[ability] = map[string]bool{}
			}
			for i, cell := range cells[2:] {
				store := head[i+2]
				told[ability][store] = true
				assert.Equal(t, has(store, ability), cell == "yes", "%s, %s: the table says %q", store, ability, cell)
			}
		}
	}
	require.ElementsMatch(t, heads, slices.Collect(maps.Keys(stores)))
	// A table leaves out the abilities that none of its stores has.
	for ability, by := range told {
		for store := range stores {
			if !by[store] {
				assert.False(t, has(store, ability), "%s, %s: no table says so", store, ability)
			}
		}
	}

	contract, err := parser.ParseFile(token.NewFileSet(), "../driver/driver.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(contract, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if ok && spec.Name.Name != "Driver" && spec.Name.Name != "Wrapper" {
			if _, ok := spec.Type.(*ast.InterfaceType); ok {
				assert.Contains(t, told, spec.Name.Name, "no row for this ability")
			}
		}
		return true
	})
}

func as[T any](d driver.Driver) bool {
	_, able := driver.As[T](d)
	return able
}
