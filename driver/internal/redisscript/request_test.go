package redisscript_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

func TestNoTwoKeysHaveTheSameBesideThem(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{
		"a", "{a}", "{{a}}", "a.", "{a}.", "{a}}", "{", "}", "{}", "{{}}", "{}{a}", "a{", "{a", "{a{", "{{a{}",
	} {
		beside := redisscript.Beside("p:", key)
		require.Empty(t, seen[beside], "%q and %q have %q", key, seen[beside], beside)
		seen[beside] = key
	}
}
