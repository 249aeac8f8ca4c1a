package interop_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Each line of the log is a heading of the guide for operators, and no heading there is of a
// line that is no longer logged.
func TestEveryLineThatIsLoggedHasAnEntryForOperators(t *testing.T) {
	var logged []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".." {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if ok && regexp.MustCompile(`^((Debug|Info|Warn|Error)(Context)?|NewRecord)$`).MatchString(method.Sel.Name) {
				text := call.Args[0]
				switch {
				case method.Sel.Name == "NewRecord" && len(call.Args) > 2:
					text = call.Args[2]
				case strings.HasSuffix(method.Sel.Name, "Context") && len(call.Args) > 1:
					text = call.Args[1]
				}
				if line := literal(text); strings.HasPrefix(line, "holdfast: ") {
					logged = append(logged, line)
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(logged), 6)

	guide, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	var entries []string
	for _, m := range regexp.MustCompile("(?m)^### `(holdfast: .*)`$").FindAllSubmatch(guide, -1) {
		entries = append(entries, string(m[1]))
	}
	assert.Subset(t, entries, logged)
	assert.Subset(t, logged, entries)
}

// literal is the text that an expression is, if it is one or several added up.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}

// The user of the guide has the rights that the package says, no more and no less, and a server
// that is told of it has a user that can do everything.
func TestUserOfTheGuideForOperatorsHasTheRightsOfThePackage(t *testing.T) {
	right := regexp.MustCompile(`[~&+][\w:*|]+`)
	doc, err := os.ReadFile("../doc.go")
	require.NoError(t, err)
	documented := regexp.MustCompile(`(?s)//\t~holdfast:\* (.*?)//\n`).Find(doc)
	guide, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	user := regexp.MustCompile(`(?m)^user locks on >secret (.*)$`).FindSubmatch(guide)
	require.NotNil(t, user)
	require.ElementsMatch(t, right.FindAllString(string(documented), -1), right.FindAllString(string(user[1]), -1))

	line := strings.Fields(string(user[0]))
	s := redistest.Real(t, append([]string{"--user"}, line[1:]...)...)
	connect := func() *holdfast.Client {
		locks := holdfast.New(s.Client(t, func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }))
		t.Cleanup(func() { assert.NoError(t, locks.Close()) })
		return locks
	}
	here, elsewhere := connect(), connect()
	first, err := here.RWMutex("prices").Lease(t.Context())
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		granted <- elsewhere.RWMutex("prices").RDo(t.Context(), func(context.Context) error { return nil })
	}()
	for queued := 0; queued == 0; time.Sleep(time.Millisecond) {
		info, err := here.RWMutex("prices").Inspect(t.Context())
		require.NoError(t, err)
		queued = len(info.Queue)
	}
	require.NoError(t, first.Renew(t.Context()))
	require.NoError(t, first.Downgrade(t.Context()))
	require.NoError(t, <-granted)
	token, err := first.Detach(t.Context())
	require.NoError(t, err)
	_, err = elsewhere.Attach(t.Context(), token)
	require.NoError(t, err)
	require.NoError(t, here.RWMutex("prices").ForceUnlock(t.Context()))
	require.NoError(t, here.Semaphore("reports", 1).Resize(t.Context(), 2))
	denied, err := s.Client(t).Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	assert.Empty(t, denied)

	// What the guide and the package say that holdfast ls needs besides.
	assert.Contains(t, string(guide), "| `holdfast ls` | `+scan` |")
	assert.Contains(t, strings.ReplaceAll(string(doc), "\n// ", " "), "holdfast ls also needs +scan")
	list := func() error {
		store := redisdriver.New(s.Client(t, func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }))
		defer store.Close()
		return store.List(t.Context(), "", func(driver.Kind, string) error { return nil })
	}
	require.ErrorContains(t, list(), "NOPERM")
	require.NoError(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "locks", "+scan").Err())
	require.NoError(t, list())
}

// On a Cluster that user needs the rights in the first row of the table, and those suffice.
func TestUserOfTheGuideForOperatorsCanUseACluster(t *testing.T) {
	guide, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	user := regexp.MustCompile(`(?m)^user locks on >secret (.*)$`).FindSubmatch(guide)
	require.NotNil(t, user)
	row := regexp.MustCompile("(?m)^\\| a Cluster \\| `(.*)`").FindSubmatch(guide)
	require.NotNil(t, row)
	more := strings.Fields(strings.ReplaceAll(string(row[1]), `\|`, "|"))
	doc, err := os.ReadFile("../doc.go")
	require.NoError(t, err)
	sentence := regexp.MustCompile(`On a Cluster the user also needs (.*)\.`).FindSubmatch(doc)
	require.NotNil(t, sentence)
	require.ElementsMatch(t, more, regexp.MustCompile(`\+[\w|]+`).FindAllString(string(sentence[1]), -1))

	c := redistest.NewCluster(t)
	admin := c.Client(t)
	use := func(rights ...string) error {
		rule := []any{"ACL", "SETUSER", "locks", "reset", "on", ">secret"}
		for _, r := range append(strings.Fields(string(user[1])), rights...) {
			rule = append(rule, r)
		}
		require.NoError(t, admin.ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, rule...).Err()
		}))
		connect := func() *holdfast.Client {
			locks := holdfast.New(c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "locks", "secret" }))
			t.Cleanup(func() { assert.NoError(t, locks.Close()) })
			return locks
		}
		here, elsewhere := connect(), connect()
		first, err := here.Mutex("prices").TryLease(t.Context())
		if err != nil {
			return err
		}
		granted := make(chan error, 1)
		go func() {
			granted <- elsewhere.Mutex("prices").Do(t.Context(), func(context.Context) error { return nil })
		}()
		for queued := 0; queued == 0; time.Sleep(time.Millisecond) {
			info, err := here.Mutex("prices").Inspect(t.Context())
			require.NoError(t, err)
			queued = len(info.Queue)
		}
		require.NoError(t, first.Release(t.Context()))
		return <-granted
	}
	denied := func() (entries []string) {
		var mu sync.Mutex
		require.NoError(t, admin.ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error {
			log, err := node.Do(ctx, "ACL", "LOG").Slice()
			mu.Lock()
			defer mu.Unlock()
			for _, entry := range log {
				entries = append(entries, fmt.Sprint(entry))
			}
			return errors.Join(err, node.Do(ctx, "ACL", "LOG", "RESET").Err())
		}))
		return entries
	}
	require.NoError(t, use(more...))
	require.Empty(t, denied())
	require.ErrorContains(t, use(), "cluster|slots")
}

// For the locks of other programs that user needs the rights in the rows of their drivers, and those
// suffice.
func TestUserOfTheGuideForOperatorsCanUseTheLocksOfOthers(t *testing.T) {
	guide, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	user := regexp.MustCompile(`(?m)^user locks on >secret (.*)$`).FindSubmatch(guide)
	require.NotNil(t, user)
	s := redistest.Real(t)
	admin := s.Client(t)
	for name, open := range map[string]func(redis.UniversalClient) driver.Driver{
		"setnx":    func(rdb redis.UniversalClient) driver.Driver { return setnx.New(rdb) },
		"getset":   func(rdb redis.UniversalClient) driver.Driver { return getset.New(rdb) },
		"redisson": func(rdb redis.UniversalClient) driver.Driver { return redisson.New(rdb) },
		"redisson fenced": func(rdb redis.UniversalClient) driver.Driver {
			return redisson.New(rdb, redisson.WithMutex(redisson.FencedLock))
		},
		"redisson fair": func(rdb redis.UniversalClient) driver.Driver {
			return redisson.New(rdb, redisson.WithMutex(redisson.FairLock))
		},
	} {
		of, _, _ := strings.Cut(name, " ")
		name = strings.ReplaceAll(name, " ", "-")
		row := regexp.MustCompile("(?m)^\\| `driver/" + of + "` \\| the names of the locks, (.*) \\|$").FindSubmatch(guide)
		require.NotNil(t, row, name)
		rule := []any{"ACL", "SETUSER", name, "reset", "on", ">secret", "~app:*"}
		for _, right := range append(strings.Fields(string(user[1])), regexp.MustCompile(`[~&+][\w:*|{]+`).FindAllString(string(row[1]), -1)...) {
			rule = append(rule, right)
		}
		require.NoError(t, admin.Do(t.Context(), rule...).Err())
		connect := func() *holdfast.Client {
			locks := holdfast.Open(open(s.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" })))
			t.Cleanup(func() { assert.NoError(t, locks.Close()) })
			return locks
		}
		here, elsewhere := connect(), connect()
		lock := "app:" + name
		first, err := here.Mutex(lock).TryLease(t.Context())
		require.NoError(t, err, name)
		_, err = elsewhere.Mutex(lock, holdfast.WithWait(200*time.Millisecond)).Lease(t.Context())
		require.ErrorContains(t, err, "held by", name)
		require.NoError(t, first.Renew(t.Context()))
		info, err := elsewhere.Mutex(lock).Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.NoError(t, first.Release(t.Context()))
		d := open(s.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" }))
		err = d.Release(t.Context(), driver.Lease{Kind: driver.Mutex, Name: lock, Token: "late", TTL: time.Second, Unsettled: true})
		if err != nil {
			require.ErrorIs(t, err, driver.ErrNotHeld)
		}
		require.NoError(t, d.Close())
		if of == "redisson" {
			owned := here.Mutex(lock, holdfast.WithOwner("o"))
			one, err := owned.TryLease(t.Context())
			require.NoError(t, err)
			two, err := owned.TryLease(t.Context())
			require.NoError(t, err)
			require.NoError(t, two.Renew(t.Context()))
			require.NoError(t, one.Release(t.Context()))
			require.NoError(t, owned.ForceUnlock(t.Context()))
			require.ErrorIs(t, two.Release(t.Context()), holdfast.ErrLost)
		}
		if name == "redisson" {
			requireReadersAndWriter(t, here.RWMutex(lock+" rw"), elsewhere.RWMutex(lock+" rw", holdfast.WithWait(1500*time.Millisecond)))
		}
		denied, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
		require.NoError(t, err)
		require.Empty(t, denied, name)
	}
}

// requireReadersAndWriter uses all of a lock from two clients.
func requireReadersAndWriter(t *testing.T, here, elsewhere *holdfast.RWMutex) {
	t.Helper()
	reader, err := here.TryRLease(t.Context())
	require.NoError(t, err)
	beside, err := elsewhere.TryRLease(t.Context())
	require.NoError(t, err)
	require.NoError(t, reader.Renew(t.Context()))
	_, err = elsewhere.TryLease(t.Context())
	require.ErrorContains(t, err, "held by")
	info, err := elsewhere.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, info.Holders, 2)
	require.NoError(t, reader.Release(t.Context()))
	require.NoError(t, beside.Release(t.Context()))
	writer, err := here.TryLease(t.Context())
	require.NoError(t, err)
	require.NoError(t, writer.Renew(t.Context()))
	_, err = elsewhere.Lease(t.Context()) // listens, and pings after a second
	require.ErrorContains(t, err, "held by")
	require.NoError(t, writer.Release(t.Context())) // tells
	held, err := here.TryLease(t.Context())
	require.NoError(t, err)
	require.NoError(t, elsewhere.ForceUnlock(t.Context()))
	require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
}
