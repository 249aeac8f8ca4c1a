package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// Bouncer starts a PgBouncer before s, and returns how to connect to it. mode is its pool_mode,
// with at most size connections to the server, and settings are more lines of its file. If
// PgBouncer is missing, the test is skipped, or fails with HOLDFAST_REQUIRE_POSTGRES=1. It ends
// with the test.
func (s *Server) Bouncer(tb testing.TB, mode string, size int, settings ...string) (dsn string) {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
		_, err = os.Stat(program)
	}
	if err != nil {
		const missing = "pgtest: pgbouncer is neither in the PATH nor in /usr/sbin: install pgbouncer"
		if os.Getenv("HOLDFAST_REQUIRE_POSTGRES") == "1" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	dir, err := os.MkdirTemp("", "holdfast-pg-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "ini")
	err = os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=%s port=5432 dbname=%s user=postgres
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
default_pool_size = %d
max_client_conn = 200
%s
`, s.dir, s.db, dir, mode, size, strings.Join(settings, "\n")), 0o644)
	if err == nil {
		err = own(dir)
	}
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, config)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = dir, unprivileged(), log, log
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.5432"))
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			tb.Fatalf("pgtest: pgbouncer: %v\n%s", err, text)
		}
	}
	return "host=" + dir + " port=5432 user=postgres dbname=postgres sslmode=disable"
}
