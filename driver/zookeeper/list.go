package zkdriver

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Lister = (*Driver)(nil)

// List implements [driver.Lister]. It reads the names of all locks, also of those that were in use a
// moment ago.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	s, err := d.view(ctx)
	if err != nil {
		return failure(err)
	}
	for _, k := range []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore} {
		names, err := d.children(ctx, s, d.root+"/lock/"+string(k))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return failure(err)
		}
		for _, escaped := range names.nodes {
			name, err := url.PathUnescape(escaped)
			if err != nil || !strings.HasPrefix(name, prefix) {
				continue
			}
			if err := f(k, name); err != nil {
				return err
			}
		}
	}
	return nil
}
