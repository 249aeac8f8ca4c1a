package holdfast_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// A text that Detach has not returned attaches to nothing.
func FuzzTokenOfAttach(f *testing.F) {
	for _, token := range []string{
		"", ":", "::", "mutex:t:", "mutex::orders", "mutex:t:orders", "semaphore:t:orders", "rwmutex:t:orders:42", "Mutex:t:orders",
		"mutex:t t:orders", "mutex:t\x00:orders", "mutex:é:orders", "mutex:t:" + strings.Repeat("x", 513), "mutex:-:orders", "mutex:=:orders",
	} {
		f.Add(token)
	}
	locks := holdfast.Open(memdriver.New())
	f.Cleanup(func() { require.NoError(f, locks.Close()) })
	f.Fuzz(func(t *testing.T, text string) {
		lease, err := locks.Mutex("orders").Lease(t.Context())
		require.NoError(t, err)
		token, err := lease.Detach(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, token, text)

		_, err = locks.Attach(t.Context(), text)
		require.ErrorIs(t, err, holdfast.ErrNotHeld)
		lease, err = locks.Attach(t.Context(), token)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}
