package lab

import (
	"reflect"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/local"
)

// InUse returns of how many locks the client knows something. The client has no method
// that tells, since only a test wants to know.
func InUse(c *holdfast.Client) int {
	locks := reflect.ValueOf(c).Elem().FieldByName("locks")
	return (*local.Registry)(locks.UnsafePointer()).InUse()
}
