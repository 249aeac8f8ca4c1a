package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSplitLeavesWhatComesAfterTheFirstDashesAlone(t *testing.T) {
	own, command := Split([]string{"holdfast", "run", "--lock", "a", "--", "git", "--", "-n"})
	assert.Equal(t, []string{"holdfast", "run", "--lock", "a"}, own)
	assert.Equal(t, []string{"git", "--", "-n"}, command)

	own, command = Split([]string{"holdfast", "ls", "--", "-x"}) // where it ends the flags
	assert.Equal(t, []string{"holdfast", "ls", "--", "-x"}, own)
	assert.Empty(t, command)

	own, command = Split([]string{"holdfast", "demo"})
	assert.Equal(t, []string{"holdfast", "demo"}, own)
	assert.Empty(t, command)
}
