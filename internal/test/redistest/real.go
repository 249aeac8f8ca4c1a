package redistest

import (
	"syscall"
	"testing"
)

// Real starts a redis-server for this test alone, which may hurt it. It keeps its
// data in memory only; args are further arguments of redis-server and win over
// the ones it has, so
//
//	Real(t, "--appendonly", "yes", "--appendfsync", "always")
//
// keeps data over a [Server.Restart], even after a [Server.Kill].
func Real(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startReal(tb, program(), args, nil)
}

// Valkey is [Real] with a valkey-server, for what Redis 7.0 does not have.
func Valkey(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startReal(tb, "valkey-server", args, nil)
}

func startReal(tb testing.TB, program string, args, env []string) *Server {
	tb.Helper()
	requireBinary(tb, program)
	d, err := newDaemon(program, args, env)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(d.remove)
	return &Server{endpoint: at(d.addr), tb: tb, prefix: prefixOf(tb), private: true, daemon: d}
}

// Stop shuts the server down in good order and returns when it is gone. Its
// connections are closed and new ones are refused.
func (s *Server) Stop() { s.process().end(syscall.SIGTERM) }

// Kill is Stop with SIGKILL.
func (s *Server) Kill() { s.process().end(syscall.SIGKILL) }

// Restart starts the server again on the same address, after a Stop if it still
// runs. The data are gone, unless [Real] was told to keep them.
func (s *Server) Restart() {
	s.tb.Helper()
	d := s.process()
	d.end(syscall.SIGTERM)
	if err := d.start(); err != nil {
		s.tb.Fatalf("redistest: restart: %v", err)
	}
}

// Pause freezes the server with SIGSTOP. Its connections stay open, and the
// kernel accepts new ones, but nothing answers until [Server.Resume].
func (s *Server) Pause() { s.signal(pause) }

// Resume ends a Pause. The server then works on what was sent to it meanwhile.
func (s *Server) Resume() { s.signal(resume) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.process().signal(sig); err != nil {
		s.tb.Fatalf("redistest: %v: %v", sig, err)
	}
}

func (s *Server) process() *daemon {
	s.tb.Helper()
	if s.daemon == nil {
		s.tb.Fatal("redistest: only a server of Real may be hurt")
	}
	return s.daemon
}
