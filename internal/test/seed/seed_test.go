package seed_test

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/seed"
)

func init() { seed.Rapid() }

// TestMain prints what a child process begins with.
func TestMain(m *testing.M) {
	if os.Getenv("SEED_CHILD") == "" {
		os.Exit(m.Run())
	}
	flag.Parse()
	println(flag.Lookup("rapid.seed").Value.String())
}

func child(t *testing.T, env ...string) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_") || strings.HasPrefix(v, "RAPID_") })
	cmd.Env = append(append(own, "SEED_CHILD=1"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func TestAGateTriesTheSameEachTime(t *testing.T) {
	_ = rapid.Bool() // has the flag
	require.Equal(t, "1", child(t))
	require.Equal(t, "7", child(t, "HOLDFAST_SEED=7", "HOLDFAST_SOAK=1"))
	require.Equal(t, "9", child(t, "RAPID_SEED=9"))
	require.NotEqual(t, child(t, "HOLDFAST_SOAK=1"), child(t, "HOLDFAST_SOAK=1"))
}
