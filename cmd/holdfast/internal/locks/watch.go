package locks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

func watchFlag() cli.Flag {
	return &cli.BoolFlag{Name: "watch", Usage: "go on showing it until Ctrl-C", Local: true}
}

// watchEvery is the least pause between two looks at what is watched. The pause is as long as
// a look takes if that is longer.
const watchEvery = 500 * time.Millisecond

// watch writes what look returns until ctx ends. A store that does not answer for a while
// ends it only if it has never answered.
func watch(ctx context.Context, s *store.Store, write func(io.Writer, []*found) error, look func() ([]*found, error)) error {
	var (
		before []string  // the last answer
		seen   time.Time // when it came
		state  string    // as it was shown
		silent bool      // the store has not answered since
		lines  int       // that are drawn on the terminal
	)
	terminal := term.Draws(os.Stdout)
	for {
		began := time.Now()
		locks, err := look()
		took := time.Since(began)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && before == nil {
			return err
		}
		if silent != (err != nil) && !terminal {
			if err != nil {
				exit.Say(fmt.Errorf("%w; trying again", err))
			} else {
				exit.Say(fmt.Errorf("%s answers again", s.Name))
			}
		}
		silent = err != nil
		text := ""
		if now := identities(locks); !silent && (terminal || before == nil || !slices.Equal(now, before)) {
			var b bytes.Buffer
			if err := write(&b, locks); err != nil {
				return exit.With(exit.Failure, err)
			}
			before, state = now, b.String()
			text = state
		}
		if _, height, ok := term.Size(os.Stdout); ok && terminal {
			if silent {
				text = fmt.Sprintf("As it was %s ago: %s; trying again\n%s", show.Whole(time.Since(seen)), show.Visible(err.Error()), state)
			}
			text = fitted(text, height)
			text, lines = redrawn(text, lines), strings.Count(text, "\n")
		}
		if !silent {
			seen = time.Now()
		}
		if _, err := os.Stdout.WriteString(text); err != nil {
			return exit.With(exit.Failure, err)
		}
		clock.Pause(ctx, max(watchEvery, took))
	}
}

// fitted returns what of text a terminal shows, with a line left for the cursor: what has
// scrolled away cannot be drawn again.
func fitted(text string, height int) string {
	lines := strings.SplitAfter(text, "\n") // and an empty one at the end
	room := max(height-2, 1)
	if len(lines)-1 <= room+1 {
		return text
	}
	return strings.Join(lines[:room], "") + fmt.Sprintf("... and %s\n", show.Plural(len(lines)-1-room, "more line", "more lines"))
}

// redrawn returns text that replaces the lines that the last one had.
func redrawn(text string, lines int) string {
	up := "\r"
	if lines > 0 {
		up = fmt.Sprintf("\r\x1b[%dA", lines)
	}
	return up + term.NoWrap + strings.ReplaceAll(text, "\n", term.ClearLine+"\r\n") + term.ClearBelow + term.Wrap
}

// identities says who holds locks and who waits. It is never nil.
func identities(locks []*found) []string {
	all := []string{}
	for _, l := range locks {
		if l.circle {
			all = append(all, fmt.Sprint("circle ", l.kind, l.Name))
		}
		for _, h := range l.Holders {
			all = append(all, fmt.Sprint("holds ", l.kind, l.Name, h.Holder, h.Fence, h.Shared, h.Weight))
		}
		for _, q := range l.Queue {
			all = append(all, fmt.Sprint("waits ", l.kind, l.Name, q.Holder, q.Shared, q.Weight))
		}
	}
	return all
}
