package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/session"
)

// Rule 6. A virtual machine that was copied while it ran goes on with the same counter.
func TestTokensOfACopiedProcessDiffer(t *testing.T) {
	original := session.New(memdriver.New())
	seen := map[string]bool{original.NewToken(): true}
	for _, s := range []*session.Session{original, original.Copy(), original.Copy()} {
		for range 100 {
			token := s.NewToken()
			require.False(t, seen[token], token)
			seen[token] = true
		}
	}
}
