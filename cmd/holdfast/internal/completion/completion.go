// Package completion is holdfast completion, and answers the questions of its scripts.
package completion

import (
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
)

const help = `Writes what makes a shell complete commands, flags and their values. After --
it completes files, and the name of the command. No command runs for that.

Examples, each for the file with which the shell starts:
   source <(holdfast completion bash)      # ~/.bashrc
   source <(holdfast completion zsh)       # ~/.zshrc
   holdfast completion fish | source       # ~/.config/fish/config.fish

Exit codes: 0;
   64   wrong command line`

// The scripts pass the words of the command line, as they were typed, to holdfast
// __complete. They leave out the word holdfast and end with the part of a word that is
// before the cursor.
//
// The completion of package cli is not used. It runs the words that were typed, with a flag
// at the end, so that TAB after -- would run a command under a lock. Its script for bash
// even has the shell evaluate them.
//
//go:embed completions
var completions embed.FS

var shells = []string{"bash", "zsh", "fish"}

// Command is holdfast completion.
func Command() *cli.Command {
	return &cli.Command{
		Name:            "completion",
		Usage:           "write a script for completion in a shell",
		UsageText:       "holdfast completion bash|zsh|fish",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Action: func(_ context.Context, cmd *cli.Command) error {
			shell := cmd.Args().First()
			if cmd.NArg() != 1 || !slices.Contains(shells, shell) {
				return exit.WrongUsage(fmt.Errorf("which shell? want %s", cmd.UsageText))
			}
			script, err := completions.ReadFile("completions/holdfast." + shell)
			if err == nil {
				_, err = cmd.Root().Writer.Write(script)
			}
			if err != nil {
				return exit.With(exit.Failure, err)
			}
			return nil
		},
	}
}

// Verb is the first word of a question for completion. It is no command of
// package cli, so that nothing but Answer sees the words.
const Verb = "__complete"

// What can stand where the cursor is. The first line of an answer says it.
const (
	completeWords   = "words"   // those on the other lines: each a word, a tab and what it means
	completeFiles   = "files"   // a file
	completeProgram = "program" // the name of a command
)

// Answer answers what can stand for the last of words, of which the part before the cursor was
// typed already. cmd has the commands.
func Answer(w io.Writer, cmd *cli.Command, words []string) {
	if len(words) == 0 {
		return
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	own, program := guard.Split(append([]string{"holdfast"}, before...))
	own = own[1:]
	switch {
	case len(own) == len(before):
	case len(program) == 0:
		fmt.Fprintln(w, completeProgram)
		return
	default:
		fmt.Fprintln(w, completeFiles)
		return
	}
	var open cli.Flag // the flag whose value comes next
	for _, word := range own {
		switch {
		case word == "=" && open != nil: // bash takes --flag=value for three words
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			if !strings.Contains(word, "=") {
				open = valued(cmd, word)
			}
		case cmd.Command(word) != nil:
			cmd = cmd.Command(word)
		}
	}
	head := ""
	if name, value, ok := strings.Cut(current, "="); ok && open == nil && strings.HasPrefix(name, "-") {
		open, head, current = valued(cmd, name), name+"=", value
	}
	if f, ok := open.(*cli.StringFlag); ok && f.TakesFile && head == "" {
		fmt.Fprintln(w, completeFiles)
		return
	}
	fmt.Fprintln(w, completeWords)
	for _, c := range candidates(cmd, open, current) {
		if strings.HasPrefix(c[0], current) {
			fmt.Fprintf(w, "%s%s\t%s\n", head, c[0], c[1])
		}
	}
}

// candidates are words, each with what it means: the values of the flag if there is one,
// else what can come next on the command line of cmd.
func candidates(cmd *cli.Command, flag cli.Flag, current string) (all [][2]string) {
	switch {
	case flag != nil:
		for _, value := range valuesOf(flag) {
			all = append(all, [2]string{value})
		}
	case strings.HasPrefix(current, "-"), cmd.Name == "run": // which has nothing but flags before --
		for _, f := range cmd.VisibleFlags() {
			usage := strings.ReplaceAll(f.(cli.DocGenerationFlag).GetUsage(), "`", "")
			all = append(all, [2]string{"--" + f.Names()[0], usage})
		}
		all = append(all, [2]string{"--help", "show help"})
		if cmd.Name == "run" {
			all = append(all, [2]string{"--", "the command follows"})
		}
	case cmd.Name == "completion":
		for _, shell := range shells {
			all = append(all, [2]string{shell})
		}
	default:
		for _, c := range cmd.VisibleCommands() {
			all = append(all, [2]string{c.Name, c.Usage})
		}
	}
	return all
}

// valued returns the flag that word names, if it has a value. Of short flags that stand
// together, the last one can have a value.
func valued(cmd *cli.Command, word string) cli.Flag {
	name := strings.TrimLeft(word, "-")
	if !strings.HasPrefix(word, "--") && name != "" {
		name = name[len(name)-1:]
	}
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) && f.(cli.DocGenerationFlag).TakesValue() {
			return f
		}
	}
	return nil
}

// valuesOf returns the values of a flag that has only a few.
func valuesOf(f cli.Flag) []string {
	switch f.Names()[0] {
	case "kind":
		return flags.Kinds
	case "on-lost":
		return guard.OnLostWays
	}
	return nil
}
