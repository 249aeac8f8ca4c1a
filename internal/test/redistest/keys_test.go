package redistest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// verdict is the testing.TB of an assertion that is itself under test.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper() {}
func (v *verdict) Fatalf(format string, args ...any) {
	v.said = fmt.Sprintf(format, args...)
	panic(v)
}

// verdictOf returns what an assertion said when it failed, "" if it passed.
func verdictOf(t *testing.T, assertion func(testing.TB)) string {
	v := &verdict{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(v) {
				panic(r)
			}
		}()
		assertion(v)
	}()
	return v.said
}

func TestRequireTTLsListsTheOffenders(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		require.NoError(t, c.Set(t.Context(), s.Prefix()+"mortal", "", time.Hour).Err())
		check := func(tb testing.TB) { s.RequireTTLs(tb, s.Prefix()) }
		assert.Empty(t, verdictOf(t, check))
		require.NoError(t, c.Set(t.Context(), s.Prefix()+"eternal", "", 0).Err())
		said := verdictOf(t, check)
		assert.Contains(t, said, s.Prefix()+"eternal")
		assert.NotContains(t, said, "mortal")
	})
}

func TestRequireNoKeysListsWhatIsLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		require.NoError(t, s.Client(t).Set(t.Context(), s.Prefix()+"left", "", time.Hour).Err())
		said := verdictOf(t, func(tb testing.TB) { s.RequireNoKeys(tb, s.Prefix(), 10*time.Millisecond) })
		assert.Contains(t, said, s.Prefix()+"left")
	})
}

func TestRequireNoKeysDoesNotWaitForATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		require.NoError(t, c.Set(t.Context(), s.Prefix()+"mortal", "", time.Minute).Err())
		began := time.Now()
		assert.Empty(t, verdictOf(t, func(tb testing.TB) { s.RequireNoKeys(tb, s.Prefix(), time.Minute) }))
		assert.Less(t, time.Since(began), 30*time.Second)
		require.NoError(t, c.Set(t.Context(), s.Prefix()+"eternal", "", 0).Err())
		said := verdictOf(t, func(tb testing.TB) { s.RequireNoKeys(tb, s.Prefix(), 10*time.Millisecond) })
		assert.Contains(t, said, s.Prefix()+"eternal")

		// A key may also be deleted in time.
		go func() {
			time.Sleep(50 * time.Millisecond)
			c.Del(context.Background(), s.Prefix()+"eternal", s.Prefix()+"mortal")
		}()
		assert.Empty(t, verdictOf(t, func(tb testing.TB) { s.RequireNoKeys(tb, s.Prefix(), 20*time.Second) }))
	})
}

func TestServerOutputIsShownWhenItDoesNotStart(t *testing.T) {
	redistest.Real(t) // or skip
	said := verdictOf(t, func(tb testing.TB) { redistest.Real(tb, "--maxmemory", "a lot") })
	assert.Contains(t, said, "maxmemory")
	assert.Contains(t, said, "did not start")
}
