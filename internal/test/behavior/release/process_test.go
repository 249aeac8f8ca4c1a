//go:build unix

package release_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// atOnce is what Close may take until others proceed, which takes milliseconds. The TTL is ten times
// that, so that who is not told finds out by itself only after three times that.
const atOnce = 6 * time.Second

func TestCloseHandsOverAllThatAProcessHas(t *testing.T) {
	t.Parallel()
	a := lab.NewArena(t, 10*atOnce)
	cs := a.Contenders(3)
	closer, other, behind := cs[0], cs[1], cs[2]
	held, busy := []string{"held 0", "held 1"}, []string{"busy 0", "busy 1"}
	for i := range held {
		closer.Lease(held[i])
		a.Wait("lease", held[i], behind)
		other.Lease(busy[i])
		a.Wait("lease", busy[i], closer, behind)
	}
	closer.Lease("alone")

	closer.Tell(lab.Order{Do: "close"})
	closed := closer.Expect("closed", "")
	assert.Empty(t, closed.Err)
	assert.LessOrEqual(t, closed.At-closed.Began, atOnce)
	for _, lock := range append(held, "alone") {
		assert.LessOrEqual(t, closer.Expect("ended", lock).At-closed.Began, atOnce)
	}
	info := a.Inspect("alone")
	assert.Empty(t, info.Holders, a.Situation("alone"))
	for i := range held {
		assert.LessOrEqual(t, behind.Expect("leased", held[i]).At-closed.Began, atOnce)
		assert.Contains(t, closer.Expect("refused", busy[i]).Is, "ErrClosed")
		assert.Len(t, a.Inspect(busy[i]).Queue, 1, a.Situation(busy[i]))
		released := other.Release(busy[i]).Began
		assert.LessOrEqual(t, behind.Expect("leased", busy[i]).At-released, atOnce)
	}
	closer.Dismiss()
	require.NoError(t, closer.Wait(), closer.Stderr())
}

func TestCloseLeavesNothingOfWhatHasJustBegun(t *testing.T) {
	t.Parallel()
	a := lab.NewArena(t, 10*atOnce)
	cs := a.Contenders(2)
	closer, other := cs[0], cs[1]
	other.Lease("busy")
	const fresh = 16
	for i := range fresh {
		closer.Tell(lab.Order{Do: "lease", Lock: fmt.Sprint("free", i)})
		closer.Tell(lab.Order{Do: "lease", Lock: "busy"})
	}
	closer.Tell(lab.Order{Do: "close"})
	require.Empty(t, closer.Expect("closed", "").Err)

	for i := range fresh {
		info := a.Inspect(fmt.Sprint("free", i))
		assert.Empty(t, info.Holders, a.Situation(info.Name))
	}
	assert.Empty(t, a.Inspect("busy").Queue, a.Situation("busy"))
	other.Release("busy")
}
