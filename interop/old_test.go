package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The guide for migration has a capture of the command, on locks that redsync and redislock hold.
// It is compared with what the command says of them now, but for tokens and times.
func TestCaptureOfLocksThatPeersHoldIsWhatTheCommandSays(t *testing.T) {
	redistest.SoakOnly(t) // It builds the command.
	guide, err := os.ReadFile("../docs/migration.md")
	require.NoError(t, err)
	capture := regexp.MustCompile("(?s)```text\n(\\$ holdfast ls --store setnx.*?)```").FindSubmatch(guide)
	require.NotNil(t, capture)

	s := redistest.Real(t)
	server := "redis://" + s.Addr()
	if s.Network() == "unix" {
		server = "unix://" + s.Addr()
	}
	command := filepath.Join(t.TempDir(), "holdfast")
	out, err := exec.Command("go", "build", "-o", command, "../cmd/holdfast").CombinedOutput()
	require.NoError(t, err, "%s", out)
	rdb := s.Client(t)
	const ttl = 95 * time.Second
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex("orders:42", redsync.WithExpiry(ttl))
	require.NoError(t, mutex.LockContext(t.Context()))
	lock, err := redislock.Obtain(t.Context(), rdb, "orders:43", ttl, &redislock.Options{Metadata: " web-3:4711"})
	require.NoError(t, err)

	varies := strings.NewReplacer(mutex.Value(), strings.Repeat("T", 24), lock.Token(), strings.Repeat("T", 22))
	token, left := regexp.MustCompile(`\b[\w+/-]{22}(==)?(\s)`), regexp.MustCompile(`\d\d\.\ds`)
	same := func(text string) string {
		text = token.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("T", len(s)-1) + s[len(s)-1:] })
		return left.ReplaceAllString(text, "00.0s")
	}
	var got strings.Builder
	for line := range strings.Lines(string(capture[1])) {
		typed, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		got.WriteString(line)
		args := strings.Fields(strings.ReplaceAll(typed, "redis://localhost", server))
		require.Equal(t, "holdfast", args[0])
		p := exec.Command(command, args[1:]...)
		p.Env = append(os.Environ(), "HOLDFAST_STORE=", "HOLDFAST_PREFIX=")
		said, err := p.CombinedOutput()
		_, failed := err.(*exec.ExitError)
		require.True(t, err == nil || failed, "%v", err)
		got.Write(said)
	}
	require.Equal(t, same(string(capture[1])), same(varies.Replace(got.String())))

	// In Go it is the same, before and after they give the locks up.
	locks := holdfast.Open(setnx.New(rdb))
	defer func() { require.NoError(t, locks.Close()) }()
	for name, value := range map[string]string{"orders:42": mutex.Value(), "orders:43": lock.Token() + lock.Metadata()} {
		info, err := locks.Mutex(name).Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.Equal(t, value, info.Holders[0].Holder)
		require.InDelta(t, ttl, info.Holders[0].TimeLeft, float64(60*time.Second))
		_, err = locks.Mutex(name).TryLease(t.Context())
		var taken *holdfast.LockError
		require.ErrorAs(t, err, &taken)
		require.Equal(t, value, taken.Holder)
		require.NotContains(t, err.Error(), " for ", "nobody knows for how long")
	}
	_, err = mutex.UnlockContext(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Release(t.Context()))
	for _, name := range []string{"orders:42", "orders:43"} {
		info, err := locks.Mutex(name).Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, info.Holders)
	}
}
