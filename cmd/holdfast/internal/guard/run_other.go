//go:build !unix

package guard

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
)

// WatchVerb is the first word of the command line of a watcher.
const WatchVerb = "__watch"

// Watch has nothing to watch here.
func Watch([]string) {}

func (g *guard) run(context.Context) error {
	return exit.With(exit.Failure, errors.New("holdfast run needs process groups, which only Unix has"))
}

func (g *guard) acquire(context.Context, bool) error {
	return exit.With(exit.Failure, errors.New("holdfast acquire needs the signals of Unix"))
}
