package redisdriver

import "github.com/holdfast-go/holdfast/driver"

// Watches returns how many tokens the driver keeps in mind.
func (d *Driver) Watches() int {
	d.wakes.mu.Lock()
	defer d.wakes.mu.Unlock()
	return len(d.wakes.tokens)
}

// Idle reports whether the driver has no timer that wakes it.
func (d *Driver) Idle() bool {
	d.wakes.mu.Lock()
	defer d.wakes.mu.Unlock()
	return d.wakes.idle
}

// Key returns the key of a lock.
func (d *Driver) Key(k driver.Kind, name string) string { return d.key(k, name) }

// Channel returns what the wake channel of the driver's client is called.
func (d *Driver) Channel() string { return d.wakes.prefix + d.wakes.id }

// ScriptParts returns, for each script, the files it is made of.
func ScriptParts() [][]string {
	var parts [][]string
	for _, s := range allScripts {
		parts = append(parts, s.parts)
	}
	return parts
}
