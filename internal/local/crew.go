package local

import "sync"

// crew does things on few goroutines, in the order in which they come.
type crew struct {
	mu      sync.Mutex
	due     []func()
	running int
}

// send has f called on another goroutine, of which there are most.
func (c *crew) send(most int, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = append(c.due, f)
	if c.running < most {
		c.running++
		go c.run()
	}
}

func (c *crew) run() {
	for {
		c.mu.Lock()
		if len(c.due) == 0 {
			c.due = nil
			c.running--
			c.mu.Unlock()
			return
		}
		next := c.due[0]
		c.due[0] = nil
		c.due = c.due[1:]
		c.mu.Unlock()
		next()
	}
}
