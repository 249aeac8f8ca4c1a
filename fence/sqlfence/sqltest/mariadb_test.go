package sqltest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tied"
)

// mariadb starts a server for this test on a unix socket, and returns the path of that. It has
// a database "test" and no system tables, so it lets everybody in.
func mariadb(tb testing.TB) (socket string) {
	tb.Helper()
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			const missing = "sqltest: mariadbd is not in the PATH: install mariadb-server-core"
			if os.Getenv("HOLDFAST_REQUIRE_MARIADB") == "1" {
				tb.Fatal(missing)
			}
			tb.Skip(missing)
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-mariadb-") // the name of tb.TempDir is too long for a socket
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	require.NoError(tb, os.MkdirAll(filepath.Join(data, "test"), 0o700))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(tb, err)
	defer func() { _ = log.Close() }()
	socket = filepath.Join(dir, "socket")
	args := []string{
		"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--skip-networking", "--skip-grant-tables",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // it wants to be told
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(tb, tied.Start(cmd, syscall.SIGKILL))
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		require.NoError(tb, err)
		if bytes.Contains(text, []byte("ready for connections")) {
			return socket
		}
		require.True(tb, time.Now().Before(deadline), "mariadbd is not ready after 30s:\n%s", text)
	}
}
