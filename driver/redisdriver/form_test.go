package redisdriver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/record"
)

// retained is the longest retention of the drivers of these tests.
const retained = 65 * time.Second

// requireConsistent fails the test if the lock at a key is not as every script must leave it.
func requireConsistent(t *testing.T, rdb redis.UniversalClient, k driver.Kind, key string) {
	t.Helper()
	r, err := record.Read(context.Background(), rdb, key, record.Moment{Kind: k, Retention: retained.Milliseconds(), Margin: 1000})
	require.NoError(t, err)
	require.Empty(t, r.Faults(), "%q %v", r.Thin, r.Fields)
}

// forms are the forms that locks had in the games of drivertest, and how they went from one to
// another.
type forms struct {
	mu   sync.Mutex
	last map[string]string // of each lock, by its key
	seen map[string]bool

	thieves map[string]bool // the tokens that have stolen a lock
}

func newForms() *forms {
	return &forms{last: map[string]string{}, seen: map[string]bool{}, thieves: map[string]bool{}}
}

// allForms are what games must come by. A fat lock becomes thin only when it is free.
var allForms = []string{
	"thin and free", "thin and held", "fat",
	"thin and free to fat", "thin and held to fat", "fat to thin and free",
	"thin and free to thin and held", "thin and held to thin and free",
}

// note takes note of the form that a lock has now.
func (f *forms) note(key string, r *record.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for token := range r.Holders {
		if f.thieves[token] {
			delete(r.Dead, token) // A token that steals is buried at once, as it steals once.
		}
	}
	now := r.Form()
	f.seen[now] = true
	if before, ok := f.last[key]; ok && before != now {
		f.seen[before+" to "+now] = true
	}
	f.last[key] = now
}

// requireAll fails a test whose games did not come by each form, and each change between two: then
// they prove nothing of it.
func (f *forms) requireAll(t *testing.T) {
	t.Helper()
	missing := slices.DeleteFunc(slices.Clone(allForms), func(form string) bool { return f.seen[form] })
	require.Empty(t, missing, "these games prove nothing of it")
}

// sighted is a driver with an eye on the records. Whenever one looks at a lock, it is also read field
// by field, and must be as every script leaves it.
type sighted struct {
	*redisdriver.Driver
	rdb   redis.UniversalClient
	forms *forms
}

func (w sighted) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	r, err := record.Read(ctx, w.rdb, w.Key(k, name), record.Moment{Kind: k, Retention: retained.Milliseconds()})
	if err != nil {
		return driver.Info{}, err
	}
	w.forms.note(w.Key(k, name), r)
	if wrong := r.Faults(); len(wrong) > 0 {
		return driver.Info{}, fmt.Errorf("FOUL: %q in %q %q", wrong, r.Thin, r.Fields)
	}
	return w.Driver.Inspect(ctx, k, name)
}

func (w sighted) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	w.forms.mu.Lock()
	w.forms.thieves[r.Token] = true
	w.forms.mu.Unlock()
	return w.Driver.Steal(ctx, r)
}
