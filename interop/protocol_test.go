package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A table of the document says which commands a script runs, and what MONITOR shows is the same.
func TestScriptsRunTheCommandsInTheDocumentOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (.+) \\| `(MGET [A-Z ]+)` \\|$").FindAllSubmatch(page, -1) {
		documented[string(m[1])] = string(m[2])
	}

	s := redistest.Real(t)
	ctx := t.Context()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(conn, "MONITOR\r\n")
	require.NoError(t, err)
	log := bufio.NewScanner(conn)
	require.True(t, log.Scan(), "+OK")
	marker := s.Client(t)
	// commands returns those that scripts have run while f ran.
	commands := func(f func()) string {
		t.Helper()
		f()
		require.NoError(t, marker.Echo(ctx, "done").Err())
		var names []string
		for log.Scan() && !strings.Contains(log.Text(), `"done"`) {
			_, command, ok := strings.Cut(log.Text(), ` lua] "`)
			if ok && !strings.Contains(command, ` "ping `) { // which clients that wait send now and then
				name, _, _ := strings.Cut(command, `"`)
				names = append(names, strings.ToUpper(name))
			}
		}
		require.NoError(t, log.Err())
		return strings.Join(names, " ")
	}
	open := func() *redisdriver.Driver {
		d := redisdriver.New(s.Client(t))
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	ask := func(d *redisdriver.Driver, token string, want driver.Status) {
		t.Helper()
		g, err := d.Acquire(ctx, &driver.Request{
			Kind: driver.Mutex, Name: "jobs", Token: token, Ask: 1, TTL: 10 * time.Second,
			Wait: true, Holder: "here", Wake: func(driver.Grant) {},
		})
		require.NoError(t, err)
		require.Equal(t, want, g.Status)
	}
	release := func(d *redisdriver.Driver, token string) {
		t.Helper()
		require.NoError(t, d.Release(context.WithoutCancel(ctx), driver.Lease{Kind: driver.Mutex, Name: "jobs", Token: token, TTL: 10 * time.Second}))
	}
	a, b, c := open(), open(), open()
	seen := map[string]string{}
	seen["acquire a lock that was not used for a minute"] = commands(func() { ask(a, "a1", driver.Granted) })
	seen["release it, and nobody waits"] = commands(func() { release(a, "a1") })
	seen["acquire a lock that is free"] = commands(func() { ask(a, "a2", driver.Granted) })
	commands(func() { ask(b, "b1", driver.Queued); ask(c, "c1", driver.Queued) })
	seen["release it: hand it over"] = commands(func() { release(a, "a2") })
	seen["acquire a lock that others wait for: join the queue"] = commands(func() { ask(b, "b2", driver.Queued) })
	assert.Equal(t, documented, seen)
}
