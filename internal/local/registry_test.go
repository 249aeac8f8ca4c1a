package local_test

import (
	"reflect"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/local"
)

// registry returns what a client knows of locks. The client has no method that tells, since only
// tests want to know.
func registry(c *holdfast.Client) *local.Registry {
	return (*local.Registry)(reflect.ValueOf(c).Elem().FieldByName("locks").UnsafePointer())
}

// inUse returns of how many locks the client knows something.
func inUse(c *holdfast.Client) int { return registry(c).InUse() }
