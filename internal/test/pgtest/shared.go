package pgtest

import (
	"slices"
	"sync"
	"testing"
)

// shared are the servers that several tests have.
var shared struct {
	sync.Mutex
	all []*sharedServer
}

type sharedServer struct {
	*Server
	tests int // that have it
}

// Shared returns a server with those args for tests that do not hurt it: a start takes as much time
// and processor as a small test. The first test that asks starts it, and it is stopped and deleted
// when the last one of those that have it has ended. A test that asks before it calls t.Parallel
// keeps it for those that ask later. Each should have a [Server.Database] of its own.
func Shared(tb testing.TB, args ...string) *Server {
	tb.Helper()
	bin := require(tb)
	shared.Lock()
	defer shared.Unlock()
	i := slices.IndexFunc(shared.all, func(s *sharedServer) bool { return slices.Equal(s.args, args) })
	if i < 0 {
		s := newServer(tb, bin, args)
		started := false
		defer func() {
			if !started {
				s.remove()
			}
		}()
		s.initialize()
		s.start()
		started = true
		i = len(shared.all)
		shared.all = append(shared.all, &sharedServer{Server: s})
	}
	s := shared.all[i]
	s.tests++
	tb.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if s.tests--; s.tests == 0 {
			shared.all = slices.DeleteFunc(shared.all, func(other *sharedServer) bool { return other == s })
			s.remove()
		}
	})
	return s.Server
}
