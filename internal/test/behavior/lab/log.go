package lab

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// Log is where the clients of a lab log.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *Log) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

// mortal panics with ErrClosed in a goroutine that would stay in Lock for ever, so that the test goes on.
type mortal struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (mortal) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (m mortal) Handle(ctx context.Context, r slog.Record) error {
	err := m.Handler.Handle(ctx, r)
	if strings.HasSuffix(r.Message, "Lock never returns") {
		panic(holdfast.ErrClosed)
	}
	return err
}

func (g *Log) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// UntilLogged waits until the loss of a lock is in the log, once for each of n leases.
func (l *Lab) UntilLogged(name string, n int) {
	l.T.Helper()
	l.Until("the loss is in the log", func() bool {
		return strings.Count(l.Log.String(), "holdfast: lock lost") >= n && strings.Contains(l.Log.String(), "lock="+name)
	})
}

// Complaints are the lines of the log with that text that say why callers still wait.
func (l *Lab) Complaints(of string) (lines []string) {
	for line := range strings.Lines(l.Log.String()) {
		if strings.Contains(line, "still waiting for the store") && strings.Contains(line, of) {
			lines = append(lines, line)
		}
	}
	return lines
}

// number is what a part of a token looks like; TestTokensAreNeverShown holds it against
// one. The same without letters is a fence.
var number = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// ShowsToken reports whether a part of a token stands in the text.
func ShowsToken(text string) bool {
	return slices.ContainsFunc(number.FindAllString(text, -1), func(n string) bool {
		return strings.ContainsAny(n, "abcdef")
	})
}

// RequireNoToken fails the test if a part of a token stands in the text.
func RequireNoToken(t *testing.T, text string) {
	t.Helper()
	require.False(t, ShowsToken(text), "a token is shown: %s", text)
}
