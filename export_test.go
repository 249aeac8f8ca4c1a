package holdfast

// Doors returns of how many locks the client knows something.
func (c *Client) Doors() int { return c.locks.InUse() }
