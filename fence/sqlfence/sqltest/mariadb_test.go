package sqltest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// mariaDB is a server on a unix socket. It has no system tables, so it lets everybody in.
type mariaDB struct {
	dir string
	cmd *exec.Cmd
}

// maria is the server that tests share, as a start takes as long as a small test.
var maria struct {
	sync.Mutex
	*mariaDB
	tests int // that have it
}

// sharedMariaDB returns the server that tests share. The first one that asks starts it, and the last one of those
// that have it stops it. A test that asks before it calls t.Parallel keeps it for those that ask later.
func sharedMariaDB(tb testing.TB) *mariaDB {
	tb.Helper()
	maria.Lock()
	defer maria.Unlock()
	if maria.tests == 0 {
		maria.mariaDB = startMariaDB(tb)
	}
	maria.tests++
	tb.Cleanup(func() {
		maria.Lock()
		defer maria.Unlock()
		if maria.tests--; maria.tests == 0 {
			maria.stop()
		}
	})
	return maria.mariaDB
}

// database makes a database on the server, for this test alone.
func (s *mariaDB) database(tb testing.TB) (dsn string) {
	name := fmt.Sprint("test_", databases.Add(1))
	do(tb, engine{driver: "mysql", dsn: "root@unix(" + s.socket() + ")/"}.plain(tb), "CREATE DATABASE "+name)
	return "root@unix(" + s.socket() + ")/" + name
}

func (s *mariaDB) socket() string { return filepath.Join(s.dir, "socket") }

func (s *mariaDB) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// mariadbd returns the path of the program, or nothing if it is not there.
func mariadbd() string {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func startMariaDB(tb testing.TB) *mariaDB {
	tb.Helper()
	program := mariadbd()
	if program == "" {
		const missing = "sqltest: mariadbd is not in the PATH: install mariadb-server-core"
		if os.Getenv("HOLDFAST_REQUIRE_MARIADB") == "1" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	dir, err := os.MkdirTemp("", "holdfast-mariadb-") // the name of tb.TempDir is too long for a socket
	require.NoError(tb, err)
	data := filepath.Join(dir, "data")
	require.NoError(tb, os.Mkdir(data, 0o700))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(tb, err)
	defer func() { _ = log.Close() }()
	s := &mariaDB{dir: dir}
	args := []string{
		"--no-defaults", "--datadir=" + data, "--socket=" + s.socket(), "--skip-networking", "--skip-grant-tables",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // it wants to be told
	}
	s.cmd = exec.Command(program, args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(tb, tied.Start(s.cmd, syscall.SIGKILL))
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		require.NoError(tb, err)
		if bytes.Contains(text, []byte("ready for connections")) {
			return s
		}
		if time.Now().After(deadline) {
			s.stop()
			tb.Fatalf("mariadbd is not ready after 30s:\n%s", text)
		}
	}
}
