package awake_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/awake"
)

// spinners returns how many threads of child processes have idle priority and run.
func spinners(t *testing.T) int {
	n := 0
	stats, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range stats {
		text, _ := os.ReadFile(file) // it may have ended since
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after) // state is the third of the line, parent the fourth, policy the 41st
		if len(fields) > 38 && fields[0] == "R" && fields[1] == fmt.Sprint(os.Getpid()) && fields[38] == "5" {
			n++
		}
	}
	return n
}

func TestEachCoreIsKeptAwakeAtIdlePriorityUntilItIsStopped(t *testing.T) {
	require.Zero(t, spinners(t))
	stop, err := awake.Keep()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return spinners(t) == runtime.NumCPU() }, 10*time.Second, 10*time.Millisecond)
	stop()
	require.Zero(t, spinners(t))
}
