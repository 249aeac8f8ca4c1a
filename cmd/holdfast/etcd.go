package main

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

	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// openEtcd connects to an etcd that has a leader. The URL has the addresses of any number
// of members, with commas between.
func (a *address) openEtcd(ctx context.Context, password string) (*store, error) {
	scheme, rest, _ := strings.Cut(a.url, "://")
	c := clientv3.Config{
		Logger: zap.NewNop(), // what it would log is in the error
		// So that it notices a server that has gone without a word.
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second, DialTimeout: connectTimeout,
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		u, err := url.Parse("etcd://" + rest[:i] + "@host")
		if err != nil {
			return nil, usage(errors.New("--store: want etcd://user:password@host:2379")) // err quotes the password
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
	if c.TLS, err = a.files.load(c.TLS); err != nil {
		return nil, usage(fmt.Errorf("--store: %w", err))
	}
	for host := range strings.SplitSeq(rest, ",") {
		if host == "" {
			return nil, usage(errors.New("--store: want etcd://host:2379,host2:2379"))
		}
		if scheme == "etcds" {
			host = "https://" + host
		}
		c.Endpoints = append(c.Endpoints, host)
	}
	s := &store{name: "etcd at " + rest}
	client, err := clientv3.New(c)
	if err != nil {
		return nil, s.unavailable(err)
	}
	s.etcd, s.close = client, func() { _ = client.Close() }
	// A read to which a majority must agree.
	if _, err := client.Get(ctx, a.prefix+"/lock/", clientv3.WithCountOnly()); err != nil {
		s.close()
		return nil, s.unavailable(err)
	}
	s.driver = etcddriver.New(client, etcddriver.WithPrefix(a.prefix))
	return s, nil
}
