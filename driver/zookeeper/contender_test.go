package zkdriver_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Each address of a server may end in a slash and a prefix, so that tests share a server.
func init() {
	contend.Register(func(addrs []string) (*holdfast.Client, func()) {
		var servers []string
		prefix := "holdfast"
		for _, a := range addrs {
			server, own, found := strings.Cut(a, "/")
			servers = append(servers, server)
			if found {
				prefix = own
			}
		}
		return holdfast.Open(zkdriver.New(servers, zkdriver.WithPrefix(prefix)), holdfast.WithTTL(contend.TTL)), func() {}
	})
}

func TestProcesses(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	server := shared.Use(t)
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel tests
		contend.Run(t, func(testing.TB) string { return fmt.Sprintf("%s/%016x", server.Addr, rand.Uint64()) })
	})
}
