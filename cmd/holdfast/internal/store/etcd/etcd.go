// Package etcd lets commands use locks in an etcd.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

func init() { store.Register(open, "etcd", "etcds") }

// open connects to an etcd that has a leader. The URL has the addresses of any number
// of members, with commas between.
func open(ctx context.Context, a *store.Address, password string) (*store.Store, error) {
	scheme, rest, _ := strings.Cut(a.URL, "://")
	c := clientv3.Config{
		Logger: zap.NewNop(), // what it would log is in the error
		// So that it notices a server that has gone without a word.
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second, DialTimeout: store.ConnectTimeout,
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		u, err := url.Parse("etcd://" + rest[:i] + "@host")
		if err != nil {
			return nil, exit.WrongUsage(errors.New("--store: want etcd://user:password@host:2379")) // err quotes the password
		}
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		rest = rest[i+1:]
	}
	if password != "" {
		c.Password = password
	}
	rest, _, _ = strings.Cut(rest, "/")
	if scheme == "etcds" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	var err error
	if c.TLS, err = a.Files.Load(c.TLS); err != nil {
		return nil, exit.WrongUsage(fmt.Errorf("--store: %w", err))
	}
	for host := range strings.SplitSeq(rest, ",") {
		if host == "" {
			return nil, exit.WrongUsage(errors.New("--store: want etcd://host:2379,host2:2379"))
		}
		if scheme == "etcds" {
			host = "https://" + host
		}
		c.Endpoints = append(c.Endpoints, host)
	}
	s := &store.Store{Name: "etcd at " + rest}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, s.Unavailable(err)
	}
	s.Client, s.Close = client, func() { _ = client.Close() }
	// A read to which a majority must agree.
	if _, err := client.Get(ctx, a.Prefix+"/lock/", clientv3.WithCountOnly()); err != nil {
		s.Close()
		return nil, s.Unavailable(err)
	}
	s.Driver = etcddriver.New(client, etcddriver.WithPrefix(a.Prefix))
	return s, nil
}
