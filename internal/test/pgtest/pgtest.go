// Package pgtest starts a PostgreSQL for a test.
//
// With HOLDFAST_REQUIRE_POSTGRES=1 in the environment, what cannot run because PostgreSQL is
// missing fails instead of being skipped. Set it in CI.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/wire"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// patience is how long a server may take to start or stop.
const patience = 30 * time.Second

// Server is a PostgreSQL, by way of one of its databases. One from [Start] is for one test alone,
// which may hurt it.
type Server struct {
	tb     testing.TB
	bin    string // where its programs are
	db     string // whose name has no spaces
	dir    string // of the data and the socket
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a server that listens on a unix socket only, and lets everybody in. args are
// further arguments of postgres, such as "-c", "max_connections=500", and win over the ones
// that it has. A committed change survives a [Server.Kill], but not a crash of the machine.
// The server is stopped and deleted when the test ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := newServer(tb, require(tb), args)
	tb.Cleanup(s.remove)
	s.initialize()
	s.start()
	return s
}

// require returns the folder with the programs, or skips the test, or fails it.
func require(tb testing.TB) (bin string) {
	tb.Helper()
	bin, ok := find()
	if !ok {
		const missing = "pgtest: initdb is neither in the PATH nor in /usr/lib/postgresql/*/bin: install postgresql"
		if os.Getenv("HOLDFAST_REQUIRE_POSTGRES") == "1" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	return bin
}

// initialize makes the data of the server: a copy of what initdb has made once for this user and
// version. To make it anew for each server costs ten times as much.
func (s *Server) initialize() {
	s.tb.Helper()
	run := func(cmd *exec.Cmd) string {
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.tb.Fatalf("pgtest: %v: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	version := strings.Fields(run(s.command("initdb", "--version")))
	template := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-pg-template-%d-%s", os.Getuid(), version[2]))
	if _, err := os.Stat(template); err != nil {
		made := filepath.Join(s.dir, "template")
		run(s.command("initdb", "-D", made, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"))
		// Of those that make it at the same time one is first.
		if err := os.Rename(made, template); err != nil && !errors.Is(err, fs.ErrExist) {
			s.tb.Fatalf("pgtest: %v", err)
		}
	}
	cp := s.command("cp", "-a", template, s.data())
	cp.Path, cp.Err = exec.LookPath("cp")
	run(cp)
}

// Found reports whether there is a PostgreSQL to start.
func Found() bool {
	_, ok := find()
	return ok
}

// find returns the folder with the programs of the newest PostgreSQL.
func find() (string, bool) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil { // the others may not be linked
			return filepath.Dir(initdb), true
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", false
	}
	return filepath.Dir(slices.Max(found)), true
}

// DSN returns how to connect, as key=value pairs that libpq, pgx and lib/pq understand. It
// stays the same over a restart.
func (s *Server) DSN() string {
	return "host=" + s.dir + " port=5432 user=postgres dbname=" + s.db + " sslmode=disable"
}

// Through returns a wire to the server, and [Server.DSN] by way of it.
func (s *Server) Through(tb testing.TB) (*wire.Wire, string) {
	tb.Helper()
	w := wire.To(tb, "unix", s.socket())
	host, port, err := net.SplitHostPort(w.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	return w, "host=" + host + " port=" + port + " user=postgres dbname=" + s.db + " sslmode=disable"
}

// Database is the way to another database of the server. The caller has made it, or will.
func (s *Server) Database(name string) *Server {
	other := *s
	other.db = name
	return &other
}

// Program returns the path of a program of this PostgreSQL, such as "psql" or "pgbench".
func (s *Server) Program(name string) string { return filepath.Join(s.bin, name) }

// Pid is that of the process which the others of the server are children of.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Stop shuts the server down in good order, and returns when it is gone: its connections are
// closed, and what is not committed is rolled back.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill is Stop without the good order, as if the server had crashed.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

// Restart starts the server again with its data, after a Stop if it still runs.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	s.start()
}

// command is a program of PostgreSQL, which refuses to be run by root.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(s.Program(name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = unprivileged()
	return cmd
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) start() {
	s.tb.Helper()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := s.command("postgres", append([]string{
		"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB",
	}, s.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := tied.Start(cmd, syscall.SIGQUIT); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log says why it ended
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	if err := s.awaitReady(); err != nil {
		text, _ := os.ReadFile(log.Name())
		s.tb.Fatalf("pgtest: %v\n%s", err, text)
	}
}

// awaitReady reads the file in which the server says how far it is.
func (s *Server) awaitReady() error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.exited:
			return errors.New("postgres did not start")
		default:
		}
		status, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
		lines := bytes.Split(status, []byte("\n"))
		// That of a server which was killed stays behind until the next one writes its own.
		ours := strings.TrimSpace(string(lines[0])) == fmt.Sprint(s.cmd.Process.Pid)
		if ours && len(lines) > 7 && string(bytes.TrimSpace(lines[7])) == "ready" {
			return nil
		}
	}
	return fmt.Errorf("postgres is not ready after %v", patience)
}

func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	select {
	case <-s.exited:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	s.cmd = nil
}
