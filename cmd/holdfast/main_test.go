//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func() int { return execute(os.Args) })
}

func TestWrongCommandLinesEndWith64(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"frobnicate"},
		{"completion"},
		{"completion", "nosuch"},
		{"completion", "bash", "zsh"},
		{"--frobnicate"},
		{"demo", "5s"},
		{"demo", "--kind", "sonnet"},
		{"demo", "--workers", "0"},
		{"demo", "--limit", "3"},
		{"demo", "--kind", "rwmutex", "--limit", "3"},
		{"demo", "--kind", "semaphore", "--limit", "0"},
		{"demo", "--kind", "semaphore", "--limit", "10"},
		{"demo", "--duration", "-1s"},
		{"demo", "--fault", "--workers", "1"},
		{"demo", "--fault", "--duration", "3s"},
		{"demo", "--redis", "http://localhost"},
		{"demo", "--store", "frob://localhost"},
		{"inspect"},
		{"inspect", "a", "b"},
		{"inspect", "a", "--kind", "sonnet"},
		{"inspect", "a", "--store", "redis+sentinel://127.0.0.1:1"}, // which master?
		{"inspect", "a", "--cacert", "/dev/null"},                   // without TLS
		{"inspect", "a", "--store", "rediss://127.0.0.1:1", "--cacert", "/dev/null"},
		{"inspect", "a", "--store", "rediss://127.0.0.1:1", "--cert", "/dev/null"},
		{"inspect", "a", "--password-file", "/nonexistent"},
		{"inspect", "a", "--password-file", "/dev/null"},
		{"inspect", "a", "--prefix", "a:2:mutex"},
		{"unlock", "a", "--force", "--yes", "--prefix", "staging", "--store", "postgres://127.0.0.1:1/shop"}, // it has none
		{"unlock", "--force"},
		{"unlock", "--force", "--", "a", "b"},
		{"inspect", "--base64", "?"},
		{"run", "--", "true"},
		{"run", "--lock", "a"},
		{"run", "--lock", "a", "--"},
		{"run", "--lock", "a", "true"},
		{"run", "--lock", "a", "--ttl", "1ms", "--", "true"},
		{"run", "--lock", "a", "--timeout", "-1s", "--", "true"},
		{"run", "--lock", "a", "--timeout", "1s", "-n", "--", "true"},
		{"run", "--lock", "a", "--prefix", "", "--", "true"},
		{"run", "--lock", "a", "-w", "soon", "--", "true"},
		{"run", "--lock", "a", "-w", "-5", "--", "true"},
		{"run", "--lock", "a", "-w", "NaN", "--", "true"},
		{"run", "--lock", "a", "-E", "256", "--", "true"},
		{"run", "--lock", "a", "-c", "true", "--", "true"},
		{"run", "--lock", "a", "-c", ""},
		{"run", "--lock", "a", "--on-lost", "weep", "--", "true"},
		{"run", "--lock", "a", "-s", "-x", "--", "true"},
		{"run", "--lock", "a", "--kind", "sonnet", "--", "true"},
		{"run", "--lock", "a", "--kind", "mutex", "-s", "--", "true"},
		{"run", "--lock", "a", "--kind", "mutex", "--limit", "2", "--", "true"},
		{"run", "--lock", "a", "--kind", "semaphore", "--", "true"},
		{"run", "--lock", "a", "--holder", "", "--", "true"},
		{"run", "--lock", "a", "-s", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "-e", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "--limit", "0", "--", "true"},
		{"run", "--lock", "a", "--permits", "1", "--", "true"},
		{"run", "--lock", "a", "--permits", "0", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "--permits", "4", "--limit", "3", "--", "true"},
	} {
		p := clitest.Command(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Run(), "%q", args)
		assert.NotEmpty(t, p.Stderr.String(), "%q says nothing", args)
		assert.NotContains(t, p.Stderr.String(), "help topic", "%q", args)
		assert.Empty(t, p.Stdout.String(), "%q", args)
	}
}

func TestErrorsNameFlagsAsTheyAreTyped(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"flag provided but not defined: --lmit; see":                 {"run", "--lmit", "3", "--", "true"},
		"flag provided but not defined: -q; see":                     {"run", "-q", "--", "true"},
		`invalid value "soon" for flag --ttl: want seconds, such as`: {"run", "--lock", "a", "--ttl", "soon", "--", "true"},
		`invalid value "soon" for flag -w: want seconds, such as`:    {"run", "--lock", "a", "-w", "soon", "--", "true"},
		`invalid value "x" for flag --workers: invalid syntax; see`:  {"demo", "--workers", "x"},
		"flag needs an argument: -w; see":                            {"run", "--lock", "a", "-w", "--", "true"},
		"flag needs an argument: --kind; see":                        {"inspect", "a", "--kind"},
		"flag needs an argument: -E; see":                            {"run", "--lock", "a", "-nE", "--", "true"},
	} {
		p := clitest.Command(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Run(), "%q", args)
		assert.Contains(t, p.Stderr.String(), "holdfast: "+want, "%q", args)
	}
}

func TestPasswordInAWrongURLIsNotShown(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--redis", "redis://:secret/word@localhost"},
		{"ls", "--store", "postgres://u:secret/word@localhost/db"},
	} {
		p := clitest.Command(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Run())
		assert.NotContains(t, p.Stderr.String(), "secret")
		assert.NotContains(t, p.Stderr.String(), "%!")
	}
}

func TestHelpTellsTheCommandsAndTheExitCodes(t *testing.T) {
	t.Parallel()
	p := clitest.Command(t, nil, "--help")
	assert.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), "\n   completion  write a script")

	p = clitest.Command(t, nil, "run", "--help")
	assert.Equal(t, 0, p.Run())
	for _, code := range []string{"64", "69", "75", "76", "126", "127", "128+n"} {
		assert.Contains(t, p.Stdout.String(), code)
	}
}

// Every command shows an example, and fits 80 columns.
func TestHelpOfEveryCommandIsWhole(t *testing.T) {
	for _, c := range append(root(nil).Commands, root(nil)) {
		assert.Contains(t, c.Description, "holdfast "+strings.TrimPrefix(c.Name, "holdfast"), "%s has no example", c.Name)
		for line := range strings.Lines(c.Description) {
			assert.LessOrEqual(t, len(line), 77+len("\n"), "%s: %s", c.Name, line) // it is shown with 3 spaces in front
		}
	}
}
