package holdfast

import "github.com/holdfast-go/holdfast/driver"

// door names the place where the goroutines of a client queue for Lock.
type door struct {
	kind driver.Kind
	name string
}

// doorway lets one goroutine of the client through at a time, first come, first
// served. Locks that Lock has made are found here by Unlock, which knows no more than
// the name. It exists only while somebody uses it.
type doorway struct {
	inside chan struct{} // holds one element while somebody is inside
	users  int           // inside or waiting; under Client.mu, like lease
	lease  *Lease        // nil until the store granted it
}

// enter goes in, waiting if it may, and reports whether it did. It does not when the
// client is closed.
func (c *Client) enter(k driver.Kind, name string, wait bool) bool {
	c.mu.Lock()
	w := c.doors[door{k, name}]
	if c.closed || w != nil && !wait {
		c.mu.Unlock()
		return false
	}
	if w == nil {
		w = &doorway{inside: make(chan struct{}, 1)}
		c.doors[door{k, name}] = w
	}
	w.users++
	c.mu.Unlock()

	select {
	case w.inside <- struct{}{}:
		return true
	case <-c.closing:
		c.drop(k, name, w)
		return false
	}
}

// leave goes out, and lets the next one in.
func (c *Client) leave(k driver.Kind, name string) {
	c.mu.Lock()
	w := c.doors[door{k, name}]
	c.mu.Unlock()
	c.drop(k, name, w)
	<-w.inside
}

func (c *Client) drop(k driver.Kind, name string, w *doorway) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.users--; w.users == 0 {
		delete(c.doors, door{k, name})
	}
}

// hold puts down, and unhold takes away, the lease of who is inside. unhold returns
// nil if there is none.
func (c *Client) hold(k driver.Kind, name string, l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doors[door{k, name}].lease = l
}

func (c *Client) unhold(k driver.Kind, name string) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.doors[door{k, name}]
	if w == nil {
		return nil
	}
	l := w.lease
	w.lease = nil
	return l
}
