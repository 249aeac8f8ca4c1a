package etcddriver

import (
	"context"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Lister = (*Driver)(nil)

// List implements [driver.Lister]. It reads the keys of all claims on those locks.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	for _, k := range []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore} {
		of := d.prefix + "/lock/" + string(k) + "/"
		reply, err := d.client.Get(ctx, of+url.PathEscape(prefix), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return d.failure(err)
		}
		last := ""
		for _, kv := range reply.Kvs { // in order, so the claims on one lock are neighbours
			escaped, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), of), "/")
			name, err := url.PathUnescape(escaped)
			if err != nil || escaped == last {
				continue // of no client of ours, or of the lock before
			}
			last = escaped
			if err := f(k, name); err != nil {
				return err
			}
		}
	}
	return nil
}
