package redlock

import "github.com/holdfast-go/holdfast/driver"

// Ballots is how many tokens a driver keeps ballots of.
func Ballots(d driver.Driver) int {
	r := inside(d)
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ballots)
}

// Ends ends the ballot of a token if that may be.
func Ends(d driver.Driver, token string) bool {
	r := inside(d)
	r.mu.Lock()
	b := r.ballots[token]
	r.mu.Unlock()
	return b.end(always)
}

func inside(d driver.Driver) *redlock {
	if n, ok := d.(*native); ok {
		return n.redlock
	}
	return d.(*redlock)
}
