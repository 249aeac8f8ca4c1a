package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// prompt is a shell on a terminal, in an empty directory, that completes holdfast.
type prompt struct {
	*clitest.Console
	shell string
	dir   string
	lines int
}

// atPrompt starts a shell. The setup is what it runs before it loads the completion.
func atPrompt(t *testing.T, setup, shell string, flags ...string) *prompt {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		missing(t, shell)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "bin", "holdfast")))
	p := clitest.Command(t, redistest.Mini(t))
	p.Cmd.Path, p.Cmd.Args, p.Cmd.Dir = path, append([]string{shell}, flags...), dir
	p.Cmd.Env = append(p.Cmd.Env, "HOME="+dir, "ZDOTDIR="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	at := &prompt{Console: p.OnTerminal(200, 50), shell: shell, dir: dir}
	if shell == "fish" {
		at.Types("function fish_prompt; echo 'rea''dy> '; end\r")
	} else {
		at.Types("PS1='rea''dy> '\r")
	}
	if setup != "" {
		at.enters(setup)
	}
	if shell == "fish" {
		at.enters("holdfast completion fish | source")
	} else {
		at.enters("source <(holdfast completion " + shell + ")")
	}
	return at
}

// enters has the shell run a line, and waits until the next can be typed. Before, the
// terminal itself would obey keys such as Ctrl-U.
func (p *prompt) enters(line string) {
	p.T.Helper()
	p.lines++
	p.Types(line + "\r")
	p.Types(fmt.Sprintf("echo 'line ''%d' ended\r", p.lines)) // which looks different when it is typed
	p.AwaitOutput(fmt.Sprintf("(?s)line %d ended.*ready> ", p.lines))
}

const (
	tab       = "\t"
	clearKeys = "\x15" // Ctrl-U
)

func (p *prompt) file(name string) string { return filepath.Join(p.dir, name) }

// missing skips a test for lack of a shell, or fails it where HOLDFAST_REQUIRE_SHELLS is set.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("HOLDFAST_REQUIRE_SHELLS") != "" {
		t.Fatalf("%s is not installed", what)
	}
	t.Skipf("%s is not installed here, so completion in it is not tested", what)
}

// eachShell runs f at the prompt of each shell whose completion there is. To start them all takes 16 s of a
// processor, so outside of the soak it is bash.
func eachShell(t *testing.T, f func(t *testing.T, at *prompt)) {
	const library = "/usr/share/bash-completion/bash_completion"
	for name, start := range map[string]func(t *testing.T) *prompt{
		"bash": func(t *testing.T) *prompt { return atPrompt(t, "", "bash", "--norc", "--noprofile", "-i") },
		"bash with bash-completion": func(t *testing.T) *prompt {
			if _, err := os.Stat(library); err != nil {
				missing(t, "bash-completion")
			}
			return atPrompt(t, "source "+library, "bash", "--norc", "--noprofile", "-i")
		},
		"zsh": func(t *testing.T) *prompt { return atPrompt(t, "", "zsh", "-f", "-i") },
		"zsh with compinit": func(t *testing.T) *prompt {
			return atPrompt(t, "autoload -Uz compinit && compinit", "zsh", "-f", "-i")
		},
		"fish": func(t *testing.T) *prompt { return atPrompt(t, "", "fish", "--no-config", "-i") },
	} {
		t.Run(name, func(t *testing.T) {
			if name != "bash" {
				redistest.SoakOnly(t)
			}
			t.Parallel()
			f(t, start(t))
		})
	}
}

func TestCompletionRunsAndEvaluatesNothing(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, at *prompt) {
		require.NoError(t, os.WriteFile(at.file("job.sh"), []byte("#!/bin/sh\ntouch RAN\n"), 0o700))
		for _, line := range []string{
			"holdfast run --lock tab -- ./job.sh ",
			"holdfast run --lock tab -- ./job.sh -",
			"holdfast run --lock tab -- ./job.sh one tw",
			"holdfast run --lock tab -c ./job.sh ",
			"holdfast run --lock tab -c ./job.sh --",
			"holdfast run --lock tab $(touch RAN) ",
			"holdfast run --lock tab $(touch RAN) --on-lost ",
			"holdfast run --lock \"$(touch RAN)\" -- tou",
			"holdfast run --lock tab -- $(touch RAN) ",
			"holdfast run --lock tab '; touch RAN; ' -",
			"$(touch RAN)/holdfast run ",
		} {
			at.Types(line + tab + tab + clearKeys)
			at.enters("")
			_, err := os.Stat(at.file("RAN"))
			require.ErrorIs(t, err, os.ErrNotExist, "TAB after %s", line)
		}
		assert.NotContains(t, at.Stdout.String(), "not found")
	})
}

func TestShellsCompleteCommandsFlagsValuesAndFiles(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, at *prompt) {
		for _, name := range []string{"data.txt", "a file"} {
			require.NoError(t, os.WriteFile(at.file(name), nil, 0o600))
		}
		require.NoError(t, os.WriteFile(at.file("job.sh"), nil, 0o700))
		// What is entered is shown. The completion calls the program itself.
		if at.shell == "fish" {
			at.enters(`function holdfast; printf '<%s>' $argv > got; end`)
		} else {
			at.enters(`holdfast() { printf '<%s>' "$@" > got; }`)
		}
		for line, want := range map[string]string{
			"insp":                           "<inspect>",
			"completion fi":                  "<completion><fish>",
			"run --lo":                       "<run><--lock>",
			"run --lock a --on-l":            "<run><--lock><a><--on-lost>",
			"run --lock a --on-lost k":       "<run><--lock><a><--on-lost><kill>",
			"run --lock a --on-lost=k":       "<run><--lock><a><--on-lost=kill>",
			"run --lock a --password-file d": "<run><--lock><a><--password-file><data.txt>",
			"inspect orders:7 --kind se":     "<inspect><orders:7><--kind><semaphore>",
			"run --lock a -- ./jo":           "<run><--lock><a><--><./job.sh>",
			"run --lock a -- ls da":          "<run><--lock><a><--><ls><data.txt>",
			"run --lock a -- ls a":           "<run><--lock><a><--><ls><a file>",
		} {
			at.enters("holdfast " + line + tab)
			got, err := os.ReadFile(at.file("got"))
			require.NoError(t, err)
			assert.Equal(t, want, strings.TrimSpace(string(got)), "TAB after %s", line)
		}
		assert.NotContains(t, at.Stdout.String(), "not found")
	})
}
