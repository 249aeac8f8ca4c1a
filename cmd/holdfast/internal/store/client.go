package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
)

// Logger is the logger to give to the library. It writes lines as the command itself does.
func Logger() *slog.Logger { return slog.New(complaints{}) }

type complaints struct{}

// Enabled implements [slog.Handler].
func (complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (complaints) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "holdfast: lock lost" {
		return nil // which the command tells, with what it does about it
	}
	var b strings.Builder
	b.WriteString(r.Message)
	before := " ("
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, "%s%s %v", before, a.Key, a.Value)
		before = ", "
		return true
	})
	if before == ", " {
		b.WriteByte(')')
	}
	exit.Say(errors.New(b.String()))
	return nil
}

// WithAttrs implements [slog.Handler]. The library gives all attributes to Handle.
func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements [slog.Handler].
func (c complaints) WithGroup(string) slog.Handler { return c }

// ReleaseTimeout bounds the last words to a Redis that does not answer: the lease
// ends by itself then, and the command's exit code should not have to wait for it.
const ReleaseTimeout = 3 * time.Second

// CloseClient returns when everything is gone that waiters which gave up have left in the
// queue, if Redis answers.
func CloseClient(locks *holdfast.Client) {
	closed := make(chan struct{})
	go func() {
		_ = locks.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(ReleaseTimeout):
	}
}
