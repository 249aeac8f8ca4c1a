package pgtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Standby starts a standby of s that is connected to the DSN, a way to s, and returns once it takes
// queries. args are added to those of s. It is stopped and deleted when the test ends.
func (s *Server) Standby(dsn string, args ...string) *Server {
	s.tb.Helper()
	standby := newServer(s.tb, s.bin, append(slices.Clone(s.args), args...)) // some must be no less than those of s
	s.tb.Cleanup(standby.remove)
	backup := standby.command("pg_basebackup", "-d", dsn, "-D", standby.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		s.tb.Fatalf("pgtest: pg_basebackup: %v\n%s", err, out)
	}
	standby.start()
	return standby
}

// newServer returns a server with a folder but without data.
func newServer(tb testing.TB, bin string, args []string) *Server {
	tb.Helper()
	// Not tb.TempDir, whose parent is closed to other users, and whose name may be too long
	// for a socket.
	dir, err := os.MkdirTemp("", "holdfast-pg-")
	if err != nil {
		tb.Fatal(err)
	}
	if err := own(dir); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return &Server{tb: tb, bin: bin, db: "postgres", dir: dir, args: args}
}

// remove ends the server and deletes it.
func (s *Server) remove() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// socket is where the server listens.
func (s *Server) socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }
