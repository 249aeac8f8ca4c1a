package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Rule 6. A virtual machine that was copied while it ran goes on with the same counter.
func TestTokensOfACopiedProcessDiffer(t *testing.T) {
	original, copied := New(nil), New(nil)
	copied.id = original.id
	seen := map[string]bool{}
	for range 100 {
		for _, s := range []*Session{original, copied} {
			token := s.NewToken()
			require.False(t, seen[token], token)
			seen[token] = true
		}
	}
}
