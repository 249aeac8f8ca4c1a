package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
)

const ms = time.Millisecond

// shop is three processes that share a Redis.
type shop struct{ web1, web2, batch *process }

func (s *shop) open(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, scene := range []func(context.Context) error{s.importCatalogue, s.report, s.charge, s.quote, s.reprice} {
		g.Go(func() error { return scene(ctx) })
	}
	return g.Wait()
}

// trace does f within a span that begins a trace.
func (p *process) trace(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, span := p.tracer.Start(ctx, name, trace.WithNewRoot())
	defer span.End()
	err := f(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

// work does what takes that long within a span.
func (p *process) work(name string, d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, span := p.tracer.Start(ctx, name)
		defer span.End()
		return pause(ctx, d)
	}
}

// importCatalogue loses its lock to an operator, and notices when it next renews it. The loop
// does not look at its context, so it is GuardHook that keeps it from writing on.
func (s *shop) importCatalogue(ctx context.Context) error {
	err := s.batch.trace(ctx, "import catalogue", func(ctx context.Context) error {
		lease, err := s.batch.locks.Mutex("import:acme", holdfast.WithTTL(3*time.Second)).Lease(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = lease.Release(ctx) }() // we return what came of the work
		var g errgroup.Group
		g.Go(func() error { return s.batch.write(lease.Context()) })
		g.Go(func() error {
			return s.web2.trace(ctx, "operator unlocks", func(ctx context.Context) error {
				return errors.Join(pause(ctx, 300*ms), s.web2.locks.Mutex("import:acme").ForceUnlock(ctx))
			})
		})
		return g.Wait()
	})
	return expect(err, holdfast.ErrLost)
}

// write writes pages for two seconds.
func (p *process) write(ctx context.Context) error {
	ctx, span := p.tracer.Start(ctx, "write pages")
	defer span.End()
	for page := range 25 {
		if err := p.rdb.Set(ctx, fmt.Sprintf("%s:page:%d", prefix, page), "…", time.Minute).Err(); err != nil {
			return cmp.Or(context.Cause(ctx), err) // which may have ended within the command
		}
		time.Sleep(80 * ms)
	}
	return nil
}

// report is a nightly job that all processes start and one should do. A second waits in case
// the first fails, the third gives up at once, and a reader of the report is not patient.
func (s *shop) report(ctx context.Context) error {
	job := func(p *process, opts ...holdfast.LockOption) *holdfast.Mutex {
		return p.locks.Mutex("report:daily", opts...)
	}
	var others, turnedAway errgroup.Group
	later := func(g *errgroup.Group, p *process, name string, story error, f func(context.Context) error) {
		g.Go(func() error { return errors.Join(pause(ctx, 200*ms), expect(p.trace(ctx, name, f), story)) })
	}
	err := s.batch.trace(ctx, "nightly report", func(ctx context.Context) error {
		lease, err := job(s.batch).Lease(ctx)
		if err != nil {
			return err
		}
		later(&others, s.web1, "nightly report", nil, func(ctx context.Context) error {
			return job(s.web1).Do(ctx, s.web1.work("find it done", 5*ms))
		})
		tried := make(chan struct{})
		later(&turnedAway, s.web2, "nightly report", nil, func(ctx context.Context) error {
			defer close(tried)
			_, err := job(s.web2).TryLease(ctx)
			return expect(err, holdfast.ErrLocked)
		})
		later(&turnedAway, s.web2, "GET /report", context.DeadlineExceeded, func(ctx context.Context) error {
			<-tried // If this waited already, TryLease would see only that somebody waits.
			return job(s.web2, holdfast.WithWait(400*ms)).Do(ctx, s.web2.work("read it", 5*ms))
		})
		err = s.batch.work("sum up", 600*ms)(lease.Context())
		err = errors.Join(err, s.disturb(ctx))
		err = errors.Join(err, s.batch.work("send mail", 800*ms)(lease.Context()))
		return errors.Join(err, turnedAway.Wait(), lease.Release(ctx))
	})
	return errors.Join(err, others.Wait())
}

// disturb breaks the network of web-1 for a moment, so that it has to subscribe again. Before,
// web-1 and web-2 must have come that far; batch never waits, and so never subscribes.
func (s *shop) disturb(ctx context.Context) error {
	for {
		listening, err := s.batch.rdb.PubSubChannels(ctx, prefix+"*").Result()
		if err != nil || len(listening) >= 2 {
			s.web1.wire.cut()
			return err
		}
		if err := pause(ctx, 20*ms); err != nil {
			return err
		}
	}
}

// charge has a payment provider who takes two calls at a time.
func (s *shop) charge(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for order := range 9 {
		g.Go(func() error {
			p := []*process{s.web1, s.web2}[order%2]
			if err := pause(ctx, time.Duration(order)*80*ms); err != nil {
				return err
			}
			return p.trace(ctx, "charge order", func(ctx context.Context) error {
				return p.locks.Semaphore("payments", 2).Do(ctx, 1, p.work("call provider", 190*ms))
			})
		})
	}
	return g.Wait()
}

// quote reads prices, often and in two processes.
func (s *shop) quote(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range []*process{s.web1, s.web2} {
		g.Go(func() error {
			for range 15 {
				err := p.trace(ctx, "GET /price", func(ctx context.Context) error {
					return p.locks.RWMutex("prices").RDo(ctx, p.work("read prices", 30*ms))
				})
				if err = errors.Join(err, pause(ctx, 60*ms)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// reprice writes prices now and then.
func (s *shop) reprice(ctx context.Context) error {
	for range 3 {
		if err := pause(ctx, 300*ms); err != nil {
			return err
		}
		err := s.web2.trace(ctx, "reprice", func(ctx context.Context) error {
			return s.web2.locks.RWMutex("prices").Do(ctx, s.web2.work("write prices", 80*ms))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expect returns an error if err is not the one that belongs to the story, which may be nil.
func expect(err, story error) error {
	if errors.Is(err, story) {
		return nil
	}
	return fmt.Errorf("have %v, want %v", err, story)
}

// wire is the network of a process.
type wire struct {
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	mu     sync.Mutex
	conns  []net.Conn
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.dialer(ctx, network, addr)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns = append(w.conns, c)
	}
	return c, err
}

// cut breaks all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}
