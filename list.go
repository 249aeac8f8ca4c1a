package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// lookers is how many locks List looks at at a time, and crowd where they go many in one call.
const lookers, crowd = 16, 256

// List returns the locks that somebody holds or waits for, if their names begin with prefix: by
// name, then by kind. Locks that are taken or released meanwhile may be missing. So is a fair lock of
// driver/redisson that nobody holds, although some wait for it.
//
// List looks at all keys of the store, and at each lock whose name begins with prefix. On Redis that
// takes about a second for a million keys, and some seconds for a hundred thousand locks that are
// held, holds up nobody, and needs the right +scan. Up to 64 locks go in one call, but one each where
// calls are not shared, see [WithPipelining]. If the store shows some locks only, because a key holds
// something else, List returns those, and an error for each of the others. If the store cannot list
// its locks, the error matches [errors.ErrUnsupported]. Transient errors are retried until ctx ends.
func (c *Client) List(ctx context.Context, prefix string) ([]Info, error) {
	c.made()
	s := c.session
	type listed struct {
		all     []Info
		refused error
	}
	atOnce := lookers
	if s.Batcher != nil {
		atOnce = crowd
	}
	found := make(chan listed, 1) // which may come when nobody waits any more
	said := s.Complaint("list", "", prefix, c.config.lockOptions)
	err := s.Await(ctx, session.Errand{Able: s.Lister != nil && s.Inspector != nil, Endure: c.config.lockOptions.Endure, Do: func() error {
		all, refused, err := list(leasectx.Exempt(ctx), s.Lister, s.Inspector, prefix, atOnce, said.AnsweredInPart)
		if err == nil {
			found <- listed{all, refused}
		}
		return err
	}}, said, local.EndOf)
	if err != nil {
		return nil, lockError("list", "", prefix, err)
	}
	l := <-found
	return l.all, l.refused
}

// list also returns why some locks are not shown, or why it has failed. It tells of each answer.
func list(ctx context.Context, l driver.Lister, i driver.Inspector, prefix string, atOnce int, answered func()) (all []Info, refused, failed error) {
	var mu sync.Mutex
	look := func(k driver.Kind, name string) {
		info, err := i.Inspect(ctx, k, name)
		err = trouble.Of(err)
		if !errors.Is(err, driver.ErrTransient) {
			answered()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, driver.ErrTransient), errors.Is(err, driver.ErrDenied), err != nil && ctx.Err() != nil:
			failed = err
		case err != nil:
			refused = errors.Join(refused, lockError("inspect", k, name, err))
		case len(info.Holders) > 0 || len(info.Queue) > 0:
			info.Kind = k
			all = append(all, info)
		}
	}
	var looking sync.WaitGroup
	room := make(chan struct{}, atOnce)
	err := l.List(ctx, prefix, func(k driver.Kind, name string) error {
		answered()
		room <- struct{}{}
		looking.Go(func() {
			look(k, name)
			<-room
		})
		mu.Lock()
		defer mu.Unlock()
		return failed
	})
	err = trouble.Of(err)
	looking.Wait()
	slices.SortFunc(all, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return all, refused, cmp.Or(failed, err)
}
