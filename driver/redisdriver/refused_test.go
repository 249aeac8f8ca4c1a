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
	named := func(name, token string) string { return token + "-" + name }
	for what, do := range operations(d, named) {
		t.Run(what, func(t *testing.T) {
			name := "lock-" + what
			news := make(chan driver.Grant, 10)
			for _, token := range []string{"held", "waits", "behind"} {
				r := driver.Request{Kind: driver.Semaphore, Name: name, Token: named(name, token), Ask: 1, TTL: time.Minute, Wait: true,
					Weight: 2, Limit: 2, Wake: func(g driver.Grant) { news <- g }}
				if token != "held" {
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
