package token

import (
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Text returns a lease as a text that names its lock, for another process to go on with.
func Text(k driver.Kind, token, name string) string { return string(k) + ":" + token + ":" + name }

// Parse returns the lease that a text names.
func Parse(text string) (driver.Lease, error) {
	kind, rest, _ := strings.Cut(text, ":")
	token, name, _ := strings.Cut(rest, ":")
	l := driver.Lease{Kind: driver.Kind(kind), Name: name, Token: token}
	known := l.Kind == driver.Mutex || l.Kind == driver.RWMutex || l.Kind == driver.Semaphore
	strange := strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	if !known || token == "" || strange || name == "" || len(name) > driver.MaxName {
		return driver.Lease{}, errors.New("this is no token of a lease")
	}
	return l, nil
}
