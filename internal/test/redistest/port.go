package redistest

import (
	"net"
	"strconv"
	"testing"
)

// FreeAddr returns an address of this machine on which nobody listens, for a server that is no Redis.
// Neither another test takes it, of whatever package, nor a connection, until this process ends: the
// server may start seconds later, and again after it was killed.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for range 10 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(randomPort()))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	tb.Fatal("redistest: no port is free")
	return ""
}
