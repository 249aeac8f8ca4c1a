package fault_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/leader"
)

// switchable is trouble that can be switched on, or nil.
type switchable struct {
	mu  sync.Mutex
	err error
}

func (s *switchable) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *switchable) get() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Allow and ReportResult make it a limiter of go-redis.
func (s *switchable) Allow() error       { return s.get() }
func (s *switchable) ReportResult(error) {}

// breaker is a hook of go-redis that lets nothing through while it is open.
type breaker struct{ *switchable }

func (b breaker) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := b.get(); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := b.get(); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// outcome is what becomes of calls in trouble that lasts for some seconds.
type outcome struct {
	ends     bool // it ends those who wait, with an error; Lock of a client that was served goes on
	final    bool // it ends the first call of a client, with a panic where no error can be returned
	released bool // Release is told at once
}

var (
	waited = outcome{}
	denied = outcome{final: true, released: true}
	ended  = outcome{ends: true, final: true, released: true}
)

// said is what servers and proxies answer, and what becomes of it.
var said = map[string]outcome{
	"LOADING Redis is loading the dataset in memory": waited,
	"upstream failure":         waited,
	"no upstream host":         waited,
	"ERR Connection timed out": waited,
	"ERR server overloaded":    waited,
	"FAILOVER in progress":     waited,
	"UNKILLABLE Sorry the script already executed write commands":      waited,
	"ERR Script attempted to access a non local key in a cluster node": waited,
	"FOO bar": waited,
	"NOPERM User app has no permissions to run the 'evalsha' command":   denied,
	"WRONGPASS invalid username-password pair or user is disabled.":     denied,
	"ERR unknown command 'evalsha', with args beginning with: ":         ended,
	"WRONGTYPE Operation against a key holding the wrong kind of value": ended,
	"CROSSSLOT Keys in request don't hash to the same slot":             ended,
	"MOVED 1 127.0.0.1:1": ended,
}

// meant is what the program says itself before the server does.
var meant = map[string]struct {
	err  error
	by   func(o *redis.Options, s *switchable)
	hook func(s *switchable) redis.Hook
}{
	"a certificate": {err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, by: dials},
	"a dialer":      {err: errors.New("no route through the mesh"), by: dials},
	"a provider of credentials": {err: errors.New("503 from the service of tokens"), by: func(o *redis.Options, s *switchable) {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", s.get() }
	}},
	"a limiter":              {err: errors.New("too many requests"), by: func(o *redis.Options, s *switchable) { o.Limiter = s }},
	"a breaker":              {err: errors.New("the circuit is open"), hook: func(s *switchable) redis.Hook { return breaker{s} }},
	"a breaker that says so": {err: fmt.Errorf("the circuit is open: %w", driver.ErrTransient), hook: func(s *switchable) redis.Hook { return breaker{s} }},
}

func dials(o *redis.Options, s *switchable) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := s.get(); err != nil {
			return nil, err
		}
		return dial(ctx, network, addr)
	}
}

// Only what is known to be the same next time ends a wait. Everything else is trouble that may pass,
// whoever says so, and whether the client was served before or not.
func TestOnlyWhatIsKnownToLastEndsAWait(t *testing.T) {
	for text, want := range said {
		t.Run(strings.Trim(text, ": "), func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				c, fresh := l.Far(), func() *holdfast.Client { return l.Far() }
				trouble(l, c, fresh, text, want, l.Server.Mini().SetError)
			})
		})
	}
	for who, by := range meant {
		t.Run(who, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				s := &switchable{}
				client := func() *holdfast.Client {
					rdb := l.Link.Client(t, func(o *redis.Options) {
						if by.by != nil {
							by.by(o, s)
						}
					})
					if by.hook != nil {
						rdb.AddHook(by.hook(s))
					}
					return l.Open(rdb)
				}
				text, _, _ := strings.Cut(by.err.Error(), ": ")
				trouble(l, client(), client, text, waited, func(text string) {
					if s.set(nil); text != "" {
						s.set(by.err)
					}
					l.Link.Cut()
				})
			})
		})
	}
}

// trouble has trouble last for 5 s, which is shorter than the leases, and looks at all calls.
func trouble(l *lab.Lab, c *holdfast.Client, fresh func() *holdfast.Client, text string, want outcome, say func(string)) {
	t, near := l.T, l.Near()
	l.Ready(c)
	ctx := t.Context()
	var held []*holdfast.Lease
	take := func(lease lab.Leasing) {
		h, err := lease(ctx)
		require.NoError(t, err)
		held = append(held, h)
	}
	for _, name := range []string{"leased", "done", "office", "locked"} {
		take(near.Mutex(name).Lease)
	}
	take(near.RWMutex("read").Lease)
	take(lab.Permits(near.Semaphore("permits", 1), 1))
	renewed, released := l.Lease(c, "renewed", holdfast.WithTTL(9*time.Second)), l.Lease(c, "released")

	short := holdfast.WithTTL(6 * time.Second) // they ask within the trouble
	nothing := func(context.Context) error { return nil }
	waiting := map[string]<-chan any{}
	waits := func(call string, f func() error) {
		waiting[call] = lab.Begin(func() {
			if err := f(); err != nil {
				panic(err)
			}
		})
	}
	leased := func(l *holdfast.Lease, err error) error {
		if err == nil {
			err = l.Release(ctx)
		}
		return err
	}
	waits("Lease", func() error { return leased(c.Mutex("leased", short).Lease(ctx)) })
	waits("RLease", func() error { return leased(c.RWMutex("read", short).RLease(ctx)) })
	waits("Do", func() error { return c.Mutex("done", short).Do(ctx, nothing) })
	waits("Acquire", func() error {
		s := c.Semaphore("permits", 1, short)
		err := s.Acquire(ctx, 1)
		if err == nil {
			s.Release(1)
		}
		return err
	})
	waits("leader.Run", func() error { return leader.New(c, "office", short).Run(ctx, nothing) })
	waits("Lock", func() error {
		m := c.Mutex("locked", short)
		m.Lock()
		m.Unlock()
		return nil
	})
	time.Sleep(time.Second)
	say(text)
	waits("Lease, begun in the trouble", func() error { return leased(c.Mutex("begun").Lease(ctx)) })
	release := lab.Begin(func() {
		if err := released.Release(ctx); err != nil {
			panic(err)
		}
	})
	a, b := fresh(), fresh()
	waits("Lease, as first call", func() error { return leased(a.Mutex("first").Lease(ctx)) })
	waits("Lock, as first call", func() error { m := b.Mutex("second"); m.Lock(); m.Unlock(); return nil })
	tried := lab.Begin(func() { fresh().Mutex("third").TryLock() })
	if _, err := c.Mutex("tried").TryLease(ctx); assert.Error(t, err) { // it does not wait for the trouble to pass
		assert.Equal(t, want == waited, errors.Is(err, holdfast.ErrUnavailable), "%v", err)
		assert.ErrorContains(t, err, text)
	}
	time.Sleep(5 * time.Second)

	returned := func(call string, done <-chan any, must bool) {
		select {
		case err := <-done:
			assert.True(t, must, "FOUL: %s has ended: %v", call, err)
			assert.ErrorContains(t, err.(error), text, call)
			delete(waiting, call)
		default:
			assert.False(t, must, "FOUL: %s waits for what is known to last", call)
		}
	}
	for call, done := range waiting {
		must := want.ends && call != "Lock"
		if strings.Contains(call, "as first call") {
			must = want.final
		}
		returned(call, done, must)
	}
	if v := <-tried; want.final {
		assert.ErrorContains(t, v.(error), text, "TryLock, as first call")
	} else {
		assert.Nil(t, v, "FOUL: TryLock, as first call")
	}
	returned("Release", release, want.released)
	if want == waited {
		assert.Contains(t, l.Log.String(), "still waiting for the store")
		assert.Contains(t, l.Log.String(), text, "FOUL: somebody waits in silence")
	}
	say("")
	l.Link.Cut() // what was made in the trouble may speak another protocol
	for _, h := range held {
		require.NoError(t, h.Release(ctx))
	}
	if !want.released {
		waiting["Release"] = release
	}
	for call, done := range waiting {
		assert.Nil(t, lab.Promptly(t, lab.Soon, func() any { return <-done }), call)
	}
	time.Sleep(9 * time.Second)
	assert.NoError(t, renewed.Err(), "FOUL: it was not renewed")
	require.NoError(t, renewed.Release(ctx))
}

// Waiters of a store that says something odd for a second keep their places, and ask no more often than
// in any other outage.
func TestSecondOfUnknownAnswersMakesNoStormAndKeepsTheOrder(t *testing.T) {
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "upstream failure"} {
		t.Run(text, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				const crowd, ttl = 20, 12 * time.Second
				near := l.Near()
				l.Ready(near)
				held := l.Lease(near, "x")
				var mu sync.Mutex
				var order []int
				var all sync.WaitGroup
				for i := range crowd {
					c := l.Far(holdfast.WithTTL(ttl))
					all.Go(func() {
						m := c.Mutex("x")
						m.Lock()
						mu.Lock()
						order = append(order, i)
						mu.Unlock()
						m.Unlock()
					})
					l.UntilQueue("x", i+1)
					time.Sleep(50 * time.Millisecond)
				}
				scripts := l.Count(func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") })
				time.Sleep(2500 * time.Millisecond) // the heartbeats come from 4 s on
				l.Server.Mini().SetError(text)
				scripts.Store(0)
				time.Sleep(time.Second)
				bad := scripts.Swap(0)
				l.Server.Mini().SetError("")
				time.Sleep(time.Second)
				after := scripts.Swap(0)
				assert.LessOrEqual(t, bad, int64(crowd*(1+9)), "FOUL: a ping a second, and asks with growing pauses")
				assert.LessOrEqual(t, after, int64(crowd*4), "FOUL: it goes on")
				t.Log("scripts in the second of trouble, and in the next:", bad, after)
				time.Sleep(5 * time.Second)
				assert.NotContains(t, l.Log.String(), "no news", "FOUL: news is well")
				require.NoError(t, held.Release(t.Context()))
				all.Wait()
				for i, who := range order {
					assert.Equal(t, i, who, "FOUL: somebody has lost its place: %v", order)
				}
			})
		})
	}
}

// The certificate of the server is one that nobody knows, for a while.
func TestWrongCertificateIsWaitedOut(t *testing.T) {
	t.Parallel()
	s, secure := redistest.RealTLS(t)
	l := lab.New(t, s)
	c := l.Open(s.Client(t, secure))
	l.Ready(c)
	near := l.Near()
	held, kept := l.Lease(near, "x"), l.Lease(c, "kept")
	began := l.Wait(c, "x", holdfast.WithTTL(3*time.Second))
	l.UntilQueue("x", 1)

	good, err := l.Direct.ConfigGet(t.Context(), "tls-cert-file").Result()
	require.NoError(t, err)
	certify := func(file string) {
		require.NoError(t, l.Direct.Do(t.Context(), "CONFIG", "SET", "tls-cert-file", file, "tls-key-file", file).Err())
	}
	certify(redistest.UnknownCertificate(t))
	require.NoError(t, l.Direct.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	require.NoError(t, l.Direct.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	_, err = c.Mutex("tried").TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrUnavailable)
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
	fresh := l.Open(s.Client(t, secure))
	locked := lab.Begin(fresh.Mutex("fresh").Lock)
	l.Until("the log names the certificate", func() bool {
		return strings.Contains(l.Log.String(), "certificate signed by unknown authority")
	})
	l.Stays(locked)

	certify(good["tls-cert-file"])
	l.Ends(locked)
	fresh.Mutex("fresh").Unlock()
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, began.Granted(lab.Ages).Release(t.Context()))
	l.Holds(kept)
	require.NoError(t, kept.Release(t.Context()))
}
