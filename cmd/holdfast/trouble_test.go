//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestEveryCommandSaysInOneLineWhatKeepsItFromItsStore(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err())
	open := redistest.Real(t)
	for name, c := range map[string]struct{ url, want string }{
		"no Redis":       {"redis://127.0.0.1:1", "no Redis at 127.0.0.1:1: "},
		"no password":    {"redis://" + s.Addr(), "wants a password"},
		"wrong password": {"redis://:wrong@" + s.Addr(), "refuses the user or the password"},
		"no TLS there":   {"rediss://" + s.Addr(), "perhaps it does not speak TLS there"},
		"no such store":  {"http://" + s.Addr(), "want a URL that begins with redis://"},
		"no database 99": {"redis://:secret@" + s.Addr() + "/99", "has no database of that number"},
		"no Cluster":     {"redis+cluster://:secret@" + s.Addr(), "this is a Redis without Cluster: use redis://"},
		"no Sentinel":    {"redis+sentinel://" + open.Addr() + "?master_name=m", "this is no Sentinel: use redis://"},
	} {
		for _, args := range [][]string{
			{"run", "--lock", "a", "--", "true"}, {"ls"}, {"inspect", "a"}, {"inspect", "a", "--watch"},
			{"unlock", "a", "--force", "--yes"}, {"doctor"}, {"demo"},
		} {
			t.Run(name+"/"+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				p := command(t, nil, args...)
				p.cmd.Env = append(p.cmd.Env, storeEnv+"="+c.url)
				if args[0] == "demo" { // it would have a Redis of its own
					p = command(t, nil, "demo", "--store", c.url)
				}
				want := exitUnavailable
				if name == "no such store" {
					want = exitUsage
				}
				assert.Equal(t, want, p.run())
				assert.Contains(t, p.stderr.String(), c.want)
				assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), "%s", &p.stderr)
				assert.NotContains(t, p.stderr.String(), "wrong@")
				assert.Empty(t, p.stdout.String())
			})
		}
	}
}

func TestOnlyWhereNothingListensThereIsNoRedis(t *testing.T) {
	failed := func(op string, err error) error {
		return fmt.Errorf("holdfast: acquire mutex \"a\": %w", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	for want, err := range map[string]error{
		`no Redis at h:1: acquire mutex "a": dial tcp: connection refused`:       failed("dial", syscall.ECONNREFUSED),
		`Redis at h:1 does not answer: acquire mutex "a": read tcp: i/o timeout`: failed("read", os.ErrDeadlineExceeded),
		`Redis at h:1: acquire mutex "a": write tcp: connection reset by peer`:   failed("write", syscall.ECONNRESET),
		`Redis at h:1: "a" is full`:                               errors.New(`redisdriver: "a" is full`),
		`Redis at h:1 does not answer: context deadline exceeded`: context.DeadlineExceeded,
	} {
		assert.EqualError(t, explain("Redis at h:1", err), want)
	}
}

// As in holdfast ls | head: it ends as other commands do, without a word.
func TestCommandWhosePipeIsBrokenEndsQuietly(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	holder := command(t, s, "run", "--lock", "a", "--", "sleep", "600").start()
	eventually(t, func() bool { return command(t, s, "inspect", "a").run() == 0 }, "it is held")
	for _, args := range [][]string{
		{"--help"}, {"ls"}, {"ls", "--json"}, {"inspect", "a"}, {"inspect", "a", "--watch"}, {"doctor"}, {"demo", "--duration", "60s"},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		p := command(t, s, args...)
		p.cmd.Stdout = w
		p.start()
		require.NoError(t, w.Close())
		select {
		case <-p.exited:
		case <-time.After(generous):
			require.Fail(t, "it does not end", "%q", args)
		}
		status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		assert.Equal(t, syscall.SIGPIPE, status.Signal(), "%q: %v", args, p.cmd.ProcessState)
		assert.Empty(t, p.stderr.String(), "%q", args)
	}
	holder.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+int(syscall.SIGTERM), holder.wait())
}
