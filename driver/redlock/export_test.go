package redlock

import "github.com/holdfast-go/holdfast/driver"

// Ballots is how many tokens a driver keeps ballots of.
func Ballots(d driver.Driver) int {
	var r *redlock
	switch d := d.(type) {
	case *redlock:
		r = d
	case *native:
		r = d.redlock
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ballots)
}
