package redisdriver_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// What a script was refused to write it tells nobody. Here the user lacks a right.
func TestRefusedWriteIsToldToNobody(t *testing.T) {
	s := redistest.Real(t)
	rights := slices.DeleteFunc(documentedRights(t), func(r string) bool { return r == "+hset" })
	d := user(t, s, "nohset", rights)
	root := redisdriver.New(s.Client(t))
	defer func() { require.NoError(t, root.Close()) }()
	ctx := context.Background()
	lease := func(name, token string) driver.Lease {
		return driver.Lease{Kind: driver.Semaphore, Name: name, Token: token, TTL: time.Minute}
	}
	for what, do := range map[string]func(name string) error{
		"release":   func(name string) error { return d.Release(ctx, lease(name, "held-"+name)) },
		"withdraw":  func(name string) error { return d.Release(ctx, lease(name, "waits-"+name)) },
		"extend":    func(name string) error { _, err := d.Extend(ctx, lease(name, "held-"+name), 3); return err },
		"raise":     func(name string) error { _, err := d.RaiseFence(ctx, lease(name, "held-"+name), 1<<52, 1); return err },
		"force":     func(name string) error { return d.ForceRelease(ctx, driver.Semaphore, name) },
		"downgrade": func(name string) error { return d.Downgrade(ctx, lease(name, "held-"+name), 1) },
		"resize":    func(name string) error { return d.Resize(ctx, name, "resize", 5) },
		"attach": func(name string) error {
			r := &driver.Request{Kind: driver.Semaphore, Name: name, Token: "new-" + name, Ask: 1, TTL: time.Minute}
			_, err := d.Attach(ctx, lease(name, "held-"+name), r)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := "lock-" + what
			news := make(chan driver.Grant, 10)
			for _, token := range []string{"held-", "waits-", "behind-"} {
				r := driver.Request{Kind: driver.Semaphore, Name: name, Token: token + name, Ask: 1, TTL: time.Minute, Wait: true,
					Weight: 2, Limit: 2, Wake: func(g driver.Grant) { news <- g }}
				if token != "held-" {
					r.Weight = 1
				}
				_, err := root.Acquire(ctx, &r)
				require.NoError(t, err)
			}
			hearAll(t, root, "before-"+what)
			for len(news) > 0 {
				<-news
			}
			require.ErrorContains(t, do(name), "grant the Redis user the rights")
			hearAll(t, root, "after-"+what)
			select {
			case g := <-news:
				require.Fail(t, "told", "%+v", g)
			default:
			}
		})
	}
}

// hearAll returns when d has heard all that was told it until now: news of all locks come one after
// the other.
func hearAll(t *testing.T, d *redisdriver.Driver, name string) {
	t.Helper()
	first, second := join(t, d, "first-"+name, time.Minute), join(t, d, "second-"+name, time.Minute)
	first.req.Name, second.req.Name = name, name
	first.must(driver.Granted)
	second.must(driver.Queued)
	first.release()
	second.pushed()
	second.release()
}
