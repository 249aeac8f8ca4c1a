package etcddriver

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// token is what is known here of a token. The truth is in the store.
type token struct {
	asks     int   // under way
	released bool  // so nobody wants to hear of it
	tie            // of its claim; zero if that is not known
	own      spare // the lease that an ask gave to its claim; zero if no answer shows that
	granted  bool
	said     string // the tag that its claim has from here
	notice   bool   // tell it when somebody waits for what it holds
	wanted   bool   // somebody has
	ask      uint64 // the last that the store is known to have handled
	wake     func(driver.Grant)
	unfollow context.CancelFunc // nil if nobody watches the others
}

// begin notes that the token asks, and returns the lease of its claim, if that is known.
func (d *Driver) begin(l lock, r *driver.Request) (*token, clientv3.LeaseID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tokens[l.id(r.Token)]
	if t == nil {
		t = &token{}
		d.tokens[l.id(r.Token)] = t
	}
	t.asks++
	return t, t.lease
}

// done notes that an ask was answered. It forgets a token that has nothing.
func (d *Driver) done(l lock, r *driver.Request, t *token, g driver.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.asks--
	if nothing := g.Status == driver.Busy || g.Status == driver.Full || t.lease == 0; nothing && t.asks == 0 {
		d.forget(l, r.Token, t)
	}
}

// forget forgets a token. The caller holds mu.
func (d *Driver) forget(l lock, name string, t *token) {
	t.ignore()
	if d.tokens[l.id(name)] == t {
		delete(d.tokens, l.id(name))
	}
}

// ignore ends the watch on the others.
func (t *token) ignore() {
	if t.unfollow != nil {
		t.unfollow()
		t.unfollow = nil
	}
}
