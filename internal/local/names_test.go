package local_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Names and owners may be any bytes. However they run into each other, each lock stays one of its own.
func TestLocksWithAndWithoutOwnersAreToldApart(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	defer func() { require.NoError(t, c.Close()) }()
	var all []*holdfast.Mutex
	for _, id := range []struct{ owner, name string }{
		{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"", "1:abc"}, {"", "2:abc"}, {"", "owned mutex"},
	} {
		var opts []holdfast.LockOption
		if id.owner != "" {
			opts = append(opts, holdfast.WithOwner(id.owner))
		}
		m := c.Mutex(id.name, opts...)
		require.Truef(t, m.TryLock(), "%q of %q", id.name, id.owner)
		all = append(all, m)
	}
	require.False(t, c.Mutex("bc").TryLock(), "the lock is one with and without an owner")
	for _, m := range all {
		m.Unlock()
		require.Panics(t, m.Unlock, "it took nothing of another")
	}
}
