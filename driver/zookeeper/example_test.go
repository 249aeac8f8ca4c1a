package zkdriver_test

import (
	"crypto/tls"
	"net"
	"time"

	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
)

// With TLS, and a user of its own.
func ExampleNew() {
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, nil)
	}
	store := zkdriver.New([]string{"a:2281", "b:2281", "c:2281"},
		zkdriver.WithDialer(dial), zkdriver.WithAuth("digest", []byte("shop:secret")), zkdriver.WithPrefix("shop"))
	defer store.Close() // locks := holdfast.Open(store, holdfast.WithTTL(5*time.Second)); locks.Close closes it
}
