package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// What is counted is what a work says: each cycle goes through, without valgrind as well.
func TestEachWorkGoesThroughItsCycles(t *testing.T) {
	for _, w := range works {
		t.Run(w.name, func(t *testing.T) {
			require.NoError(t, w.play(t.Context(), redistest.Real(t).Addr(), 100))
		})
	}
}
