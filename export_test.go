package holdfast

// Doors returns of how many locks the client knows something.
func (c *Client) Doors() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.doors)
}
