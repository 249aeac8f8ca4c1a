// Package flags has what the flags of several commands have in common.
package flags

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
)

// Kinds are the kinds of lock that a name can stand for.
var Kinds = []string{"mutex", "rwmutex", "semaphore"}

// Program makes a command of package cli the one that a program runs. Package cli would end the
// process itself, with a code of its own.
func Program(cmd *cli.Command) *cli.Command {
	cmd.OnUsageError = OnUsageError
	cmd.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	return cmd
}

// JSON is the flag of commands whose output programs read.
func JSON() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "write JSON, for programs", Local: true}
}

// Package cli writes all flags with one dash in some errors, and tells which function of Go
// found that a number is none.
var (
	oneDash   = regexp.MustCompile(`(for flag |not defined: )-([^-][^: ]+)`)
	parsing   = regexp.MustCompile(`strconv\.\w+: parsing ".*": `)
	onlyShort = regexp.MustCompile(`argument: (\w)$`)
)

// OnUsageError says what is wrong with a command line, in words of the command line.
func OnUsageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	text := oneDash.ReplaceAllString(err.Error(), "$1--$2")
	text = parsing.ReplaceAllString(text, "")
	text = onlyShort.ReplaceAllString(text, "argument: -$1")
	return exit.WrongUsage(fmt.Errorf("%s; see %s --help", text, cmd.FullName()))
}

// NoArguments refuses words that a command has no use for. Most often they are flags
// without dashes.
func NoArguments(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return exit.WrongUsage(fmt.Errorf("unexpected argument %q; see %s --help", cmd.Args().First(), cmd.FullName()))
	}
	return nil
}

// OneOf returns a validator of a flag whose value is one of words.
func OneOf(words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if s == w {
				return nil
			}
		}
		return fmt.Errorf("%q is not one of: %s", s, strings.Join(words, ", "))
	}
}

// Between returns a validator of a number from low to high.
func Between[T int | int64](low, high T) func(T) error {
	return func(n T) error {
		if n < low || n > high {
			return fmt.Errorf("must be %d to %d", low, high)
		}
		return nil
	}
}

// Positive is a validator of a time.
func Positive(d time.Duration) error {
	if d <= 0 {
		return errors.New("must be more than 0")
	}
	return nil
}

// NotNegative is a validator of a time.
func NotNegative(d time.Duration) error {
	if d < 0 {
		return errors.New("must not be negative")
	}
	return nil
}
