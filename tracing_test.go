package holdfast_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The library itself needs no more than the API of OpenTelemetry.
func TestLibraryImportsNoSDK(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	assert.Contains(t, deps, "go.opentelemetry.io/otel/trace")
	for _, d := range deps {
		for _, no := range []string{"go.opentelemetry.io/otel/sdk", "redisotel", "go.opentelemetry.io/otel/exporters", "miniredis", "testify", "/internal/test/redistest"} {
			assert.NotContains(t, d, no)
		}
	}
}
