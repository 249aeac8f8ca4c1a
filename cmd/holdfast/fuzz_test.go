//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

// Whatever the command line is, there is an exit code of ours, and why in one line. The lines of
// text are the words. There is no store, so no command is run and nobody is asked.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{
		"", "run", "run\n--lock\na\n--\ntrue", "run\n--lock\n\n--\ntrue", "run\n--lock\na\n-sn\n-c\ntrue", "run\n-l\n--\n--",
		"run\n--lock\na\n-w\n1e400\n--\ntrue", "run\n--lock\na\n-w\n9223372037\n--\ntrue", "run\n--lock\na\n-w\nInf\n--\ntrue",
		"run\n--lock\na\n--limit\n9223372036854775807\n--permits\n2\n--\ntrue", "run\n--lock\na\n--ttl\n-1ns\n--\ntrue",
		"ls", "ls\na\nb", "inspect", "inspect\na\n--watch\n--json", "unlock\na\n--force\n--yes", "doctor\n--json", "doctor\n-x",
		"help", "help\nrun", "--version", "-h\nrun", "completion\nbash", "--generate-shell-completion", "run\n--generate-shell-completion",
		"ls\n--store\nnowhere", "ls\n--prefix\na:2:mutex", "ls\n--prefix=", "ls\n--cert=\x00", "wrong\x1b[2J", "--", "-", "---", "-=", "--=x", "run\n--lock=\xff",
	} {
		f.Add(line)
	}
	f.Setenv(store.URLEnv, "none://")
	codes := []int{0, exit.Usage, exit.Unavailable}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "demo") || strings.Contains(line, "/") || strings.Contains(line, "postgres") || strings.Contains(line, "etcd") || strings.Contains(line, "zk") {
			t.Skip("it could start processes, read a file that never ends, or find a store")
		}
		code, said := captured(t, func() int { return execute(append([]string{"holdfast"}, strings.Split(line, "\n")...)) })
		require.Contains(t, codes, code, "%q", line)
		if code != 0 {
			require.True(t, strings.HasPrefix(said, "holdfast: "), "%q says %q", line, said)
			require.Equal(t, strings.IndexByte(said, '\n'), len(said)-1, "%q says %q", line, said)
			require.False(t, strings.ContainsFunc(said[:len(said)-1], func(c rune) bool { return c < ' ' }), "%q says %q", line, said)
		}
	})
}

// captured runs f, and returns its result and what it has written to the standard error.
func captured(t *testing.T, f func() int) (code int, said string) {
	t.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = nowhere.Close() }()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	done := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		done <- string(b)
	}()
	out, errs := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = out, errs }()
	os.Stdout, os.Stderr = nowhere, w
	code = f()
	require.NoError(t, w.Close())
	return code, <-done
}
