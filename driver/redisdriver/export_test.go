package redisdriver

// Watches returns how many tokens the driver keeps in mind.
func (d *Driver) Watches() int {
	d.wakes.mu.Lock()
	defer d.wakes.mu.Unlock()
	return len(d.wakes.tokens)
}

// Classify says what the driver makes of an error of go-redis.
var Classify = classify
