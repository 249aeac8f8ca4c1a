// Package zookeeper lets commands use locks in a ZooKeeper.
package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/driver"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
)

func init() { store.Register(open, "zk", "zks") }

// Servers are those of a ZooKeeper, and how to connect to one of them.
type Servers struct {
	Addrs []string
	Dial  func(network, address string, timeout time.Duration) (net.Conn, error)
}

// open connects to a ZooKeeper that has a leader. The URL has the addresses of any number of
// members, with commas between.
func open(ctx context.Context, a *store.Address, password string) (*store.Store, error) {
	scheme, rest, _ := strings.Cut(a.URL, "://")
	opts := []zkdriver.Option{zkdriver.WithPrefix(a.Prefix)}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		u, err := url.Parse("zk://" + rest[:i] + "@host")
		if err != nil {
			return nil, exit.WrongUsage(errors.New("--store: want zk://user:password@host:2181")) // err quotes the password
		}
		if password == "" {
			password, _ = u.User.Password()
		}
		opts = append(opts, zkdriver.WithAuth("digest", []byte(u.User.Username()+":"+password)))
		rest = rest[i+1:]
	}
	rest, path, _ := strings.Cut(rest, "/")
	if path != "" {
		return nil, exit.WrongUsage(errors.New("--store: zk:// takes no path: say with --prefix below which node the locks are"))
	}
	if strings.ContainsAny(rest, "?#") {
		return nil, exit.WrongUsage(errors.New("--store: zk:// takes no parameters, only servers: say with --prefix below which node the locks are"))
	}
	var secure *tls.Config
	if scheme == "zks" {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure, err := a.Files.Load(secure)
	if err != nil {
		return nil, exit.WrongUsage(fmt.Errorf("--store: %w", err))
	}
	servers := &Servers{Addrs: strings.Split(rest, ","), Dial: net.DialTimeout}
	if secure != nil {
		servers.Dial = func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, secure)
		}
		opts = append(opts, zkdriver.WithDialer(servers.Dial))
	}
	for i, host := range servers.Addrs {
		if host == "" {
			return nil, exit.WrongUsage(errors.New("--store: want zk://host:2181,host2:2181"))
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			servers.Addrs[i] = net.JoinHostPort(strings.Trim(host, "[]"), "2181")
		}
	}
	d := zkdriver.New(servers.Addrs, opts...)
	s := &store.Store{Name: "ZooKeeper at " + rest, Driver: d, Client: servers, Close: func() {}}
	// A question to the leader. The driver keeps the session that it opens for that.
	if _, err := d.Inspect(ctx, driver.Mutex, "holdfast"); err != nil {
		_ = d.Close()
		return nil, s.Unavailable(err)
	}
	return s, nil
}
