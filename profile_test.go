package holdfast_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// closeBooks is stuck.
//
//go:noinline
func closeBooks(f func() error) error { return f() }

// The guide shows the profile of a goroutine that holds a lock.
func TestProfileInTheGuideIsThatOfAHolder(t *testing.T) {
	c := holdfast.Open(memdriver.New(), holdfast.WithProfileLabels())
	defer c.Close()
	var text bytes.Buffer
	require.NoError(t, c.Mutex("ledger").Do(t.Context(), func(context.Context) error {
		return closeBooks(func() error { return pprof.Lookup("goroutine").WriteTo(&text, 1) })
	}))
	stanza := regexp.MustCompile(`(?m)^# labels: .*ledger.*\n(#.*\n)+`)
	// alike is the labels, and the functions of the program and of the public methods.
	alike := func(text string) []string {
		var all []string
		for line := range strings.Lines(stanza.FindString(text)) {
			if labels, ok := strings.CutPrefix(line, "# labels: "); ok {
				all = append(all, regexp.MustCompile(`\d+`).ReplaceAllString(labels, "N"))
			} else if f := regexp.MustCompile(`(closeBooks|\(\*Mutex\)\.Do)\+`).FindString(line); f != "" {
				all = append(all, f)
			}
		}
		return all
	}
	guide, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	require.Len(t, alike(text.String()), 3)
	assert.Equal(t, alike(text.String()), alike(string(guide)), "it is now\n%s", stanza.FindString(text.String()))
}

func TestProfileOfGoroutinesTellsWhoHoldsWhat(t *testing.T) {
	profile := func(name string, opts ...holdfast.Option) string {
		c := holdfast.Open(memdriver.New(), opts...)
		defer c.Close()
		var text bytes.Buffer
		require.NoError(t, c.RWMutex("prices").Do(t.Context(), func(ctx context.Context) error {
			return c.Mutex(name).Do(ctx, func(context.Context) error {
				return pprof.Lookup("goroutine").WriteTo(&text, 1)
			})
		}))
		return text.String()
	}
	with := profile("orders:42", holdfast.WithProfileLabels())
	assert.Regexp(t, `# labels: \{"holdfast.fence":"\d+", "holdfast.kind":"mutex", "holdfast.lock":"orders:42"\}`, with)
	// A goroutine of the locks before may still be about to end, with its labels.
	assert.NotContains(t, profile("orders:43"), "orders:43")
}
