package redlock

import "github.com/holdfast-go/holdfast/driver"

// Ballots is how many tokens a driver keeps ballots of.
func Ballots(d driver.Driver) int {
	var r *Driver
	switch d := d.(type) {
	case *Driver:
		r = d
	case *native:
		r = d.Driver
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ballots)
}
