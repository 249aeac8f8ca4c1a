package redisdriver_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// gag does to pings what a server does that does not pass on what scripts publish. Other
// scripts swallow that, so nothing else tells of it.
type gag struct {
	through
	as    atomic.Int32
	pings atomic.Int32
	text  string // of what is refused, if it is not about the command
}

const (
	speak    int32 = iota
	denied         // the server says no
	swallow        // it says yes, and nobody hears it
	stumble        // it cannot, for now
	shut           // it lets nobody in
	miss           // it knows of nobody who hears it, and it is heard
	missSome       // so do two of three servers
)

func (g *gag) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if procedure(cmd) != "holdfast.wake.ping" {
			return next(ctx, cmd)
		}
		number := g.pings.Add(1)
		switch as := g.as.Load(); as {
		case miss, missSome:
			err := next(ctx, cmd)
			if as == miss || number%3 != 0 {
				answer(cmd, int64(0))
			}
			return err
		case denied:
			cmd.SetErr(serverError(cmp.Or(g.text, "ERR Unknown Redis command called from script")))
		case stumble:
			cmd.SetErr(serverError("LOADING Redis is loading the dataset in memory"))
		case shut:
			cmd.SetErr(serverError("WRONGPASS invalid username-password pair or user is disabled."))
		case swallow:
			answer(cmd, int64(1))
		default:
			return next(ctx, cmd)
		}
		return cmd.Err()
	}
}

// muzzled runs body, in virtual time, with a party that waits behind another, and with what
// the driver reports.
func muzzled(t *testing.T, as int32, body func(t *testing.T, g *gag, waiter *party, reports <-chan string)) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		g := &gag{}
		g.as.Store(as)
		rdb := s.Client(t)
		rdb.AddHook(g)
		d := open(t, rdb, s)
		reports := make(chan string, 100)
		d.OnReconnect(func(reason string) { reports <- reason })
		holds(t, d, "holder", time.Hour)
		waiter := join(t, d, "waiter", time.Hour)
		waiter.req.Wake = func(driver.Grant) {}
		waiter.must(driver.Queued)
		body(t, g, waiter, reports)
	})
}

func reported(reports <-chan string) (all []string) {
	for {
		select {
		case r := <-reports:
			all = append(all, r)
		default:
			return all
		}
	}
}

// While a server runs no script at all there is no news either, but nothing is said of it.
func TestRefusalOfScriptsSaysNothingOfNews(t *testing.T) {
	for text, ofNews := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command":                               false,
		"NOPERM No permissions to access a key":                                                          false,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                              false,
		"ERR unknown command 'EVALSHA', with args beginning with: ":                                      false,
		"CROSSSLOT Keys in request don't hash to the same slot":                                          false,
		"NOAUTH Authentication required.":                                                                false,
		"DENIED Redis is running in protected mode":                                                      false,
		"NOPERM this user has no permissions to run the 'publish' command or its subcommand":             true,
		"NOPERM this user has no permissions to access one of the channels used as arguments":            true,
		"NOPERM No permissions to access a channel":                                                      true,
		"ERR The user executing the script can't run this command or subcommand script: 0a, on @user:1.": true,
		"ERR ACL failure in script: User u has no permissions to run the 'publish' command":              true,
		"ERR unknown command 'subscribe', with args beginning with: ":                                    true,
		"ERR This Redis command is not allowed from script script: 0a, on @user_script:1.":               true,
	} {
		t.Run(text, func(t *testing.T) {
			muzzled(t, speak, func(t *testing.T, g *gag, waiter *party, reports <-chan string) {
				time.Sleep(100 * time.Millisecond)
				g.text = text
				g.as.Store(denied)
				time.Sleep(5 * time.Second)
				require.Equal(t, ofNews, len(reported(reports)) > 0, "FOUL")
				require.Equal(t, ofNews, waiter.polls())
			})
		})
	}
}

func TestWaitersPollUntilAPingOfAScriptIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		as      int32
		reports []string
		within  time.Duration // until it is known
		mended  time.Duration // until that is noticed
	}{
		"refused": {denied, []string{"mute"}, 0, 31 * time.Second},
		"unheard": {swallow, []string{"silent", "mute", "silent"}, 10 * time.Second, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			muzzled(t, c.as, func(t *testing.T, g *gag, waiter *party, reports <-chan string) {
				time.Sleep(c.within)
				synctest.Wait()
				require.True(t, waiter.polls())
				require.ElementsMatch(t, c.reports, reported(reports))

				g.pings.Store(0)
				for range 10 {
					time.Sleep(6 * time.Second)
					require.True(t, waiter.polls())
				}
				require.NotContains(t, reported(reports), "mute", "it is told once")
				require.Less(t, g.pings.Load(), int32(15), "a server that refuses is left in peace")

				g.as.Store(speak)
				time.Sleep(c.mended)
				require.False(t, waiter.polls(), "a right that was given is noticed")
				g.as.Store(c.as)
				time.Sleep(c.mended)
				require.True(t, waiter.polls())
				require.Contains(t, reported(reports), "mute", "again")
			})
		})
	}
}

// In a failover the subscription may stay with the old master, which passes on what it copies from the new
// one, and so do some proxies with all that they hear.
func TestSubscriptionFollowsTheServerThatRunsCommands(t *testing.T) {
	for name, c := range map[string]struct {
		before, then int32
		after        int32         // 3 s later
		reconnects   [2]int        // from, to
		within       time.Duration // of that
	}{
		"it is elsewhere":        {speak, miss, speak, [2]int{1, 1}, 10 * time.Minute},
		"and is so again":        {speak, miss, miss, [2]int{8, 20}, 10 * time.Minute},
		"nobody is ever told of": {miss, miss, miss, [2]int{0, 0}, 10 * time.Minute},
		"there are several":      {missSome, missSome, missSome, [2]int{1, 2}, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			muzzled(t, c.before, func(t *testing.T, g *gag, waiter *party, reports <-chan string) {
				var all []string
				for _, step := range []struct {
					as   int32
					last time.Duration
				}{{c.before, time.Minute}, {c.then, 3 * time.Second}, {c.after, c.within}} {
					g.as.Store(step.as)
					for end := time.Now().Add(step.last); time.Now().Before(end); time.Sleep(time.Second) {
						waiter.ask()
						all = append(all, reported(reports)...)
					}
				}
				require.GreaterOrEqual(t, len(all), c.reconnects[0], all)
				require.LessOrEqual(t, len(all), c.reconnects[1], all)
				require.NotContains(t, all, "mute")
				require.False(t, waiter.polls())
			})
		})
	}
}

// One address stands for both servers, as that of a managed Redis does. The waiter must not be taken for
// one of whom nobody knows whether it has gone.
func TestSubscriptionFollowsAFailoverToAnotherServer(t *testing.T) {
	redistest.RequireReal(t)
	old := redistest.Real(t)
	heir := old.Replica(t)
	var addr atomic.Value
	addr.Store(old.Addr())
	rdb := old.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
		}
	})
	d := open(t, rdb, old)
	holder, waiter := holds(t, d, "holder", time.Hour), waits(t, d, "waiter", time.Hour)
	direct, promoted := old.Client(t), heir.Client(t)
	subscribed(t, direct, old, 1)
	require.Eventually(t, func() bool { return promoted.HExists(t.Context(), key(old), "w:1").Val() }, 10*time.Second, time.Millisecond)

	heir.Promote(t)
	addr.Store(heir.Addr())
	old.Follow(t, heir)
	require.NoError(t, direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	subscribed(t, promoted, old, 1)
	subscribed(t, direct, old, 0)
	require.Eventually(t, d.Hears, 10*time.Second, time.Millisecond)
	waiter.must(driver.Queued)
	record := strings.Fields(promoted.HGet(t.Context(), key(old), "w:1").Val())
	require.Equal(t, "1", record[6], "heard")
	holder.release()
	waiter.pushed()
}

// babbling is a connection on which a subscription gets a reply of its own.
type babbling struct {
	net.Conn
	reply string
	asked atomic.Bool
}

func (c *babbling) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		c.asked.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *babbling) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.asked.Swap(false) {
		n = copy(p, c.reply)
	}
	return n, err
}

// A reply to a subscription that nobody knows ends its connection, not the process.
func TestOddReplyToASubscriptionIsAnErrorOfItsConnection(t *testing.T) {
	for _, reply := range []string{"*0\r\n", "*1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*2\r\n$7\r\nmessage\r\n:1\r\n", "*-1\r\n", ":1\r\n"} {
		t.Run(strings.ReplaceAll(reply, "\r\n", " "), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				var dials atomic.Int32
				d := open(t, s.Client(t, func(o *redis.Options) {
					dial := o.Dialer
					o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials.Add(1)
						conn, err := dial(ctx, network, addr)
						return &babbling{Conn: conn, reply: reply}, err
					}
				}), s)
				holds(t, d, "holder", time.Hour)
				waiter := join(t, d, "waiter", time.Hour)
				waiter.req.Wake = func(driver.Grant) {}
				waiter.must(driver.Queued)
				time.Sleep(10 * time.Second)
				require.True(t, waiter.polls())
				require.Less(t, dials.Load(), int32(20), "FOUL: it is made again and again")
			})
		})
	}
}

// Thousands of waiters that begin to poll are the last thing that an overloaded server needs.
func TestWaitersDoNotPollBecauseAPingFailedInPassing(t *testing.T) {
	for _, as := range []int32{stumble, shut} {
		muzzled(t, as, func(t *testing.T, g *gag, waiter *party, reports <-chan string) {
			time.Sleep(time.Minute)
			require.Greater(t, g.pings.Load(), int32(50))
			require.False(t, waiter.polls())
			require.Empty(t, reported(reports))
		})
	}
}

// A machine should not be woken every second because a client of it once had to wait.
func TestPingsRestWhileNobodyWaits(t *testing.T) {
	muzzled(t, speak, func(t *testing.T, g *gag, waiter *party, reports <-chan string) {
		time.Sleep(10 * time.Second)
		for range 3 {
			waiter.release()
			time.Sleep(1500 * time.Millisecond)
			g.pings.Store(0)
			time.Sleep(10 * time.Minute)
			require.Zero(t, g.pings.Load())

			waiter.req.Token += "'" // another one
			waiter.must(driver.Queued)
			time.Sleep(10 * time.Second)
			require.InDelta(t, 10, g.pings.Load(), 1)
		}
		require.Empty(t, reported(reports))
	})
}

// Rule 13. Without a subscription waiters have to ask often; and when there is one
// again, at once, since news may have been missed.
func TestWaitersPollUntilTheSubscriptionIsThere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d, proxy := flaky(t, s)
		holds(t, d, "a", ttl)
		b := waits(t, d, "b", ttl)
		told := func() {
			t.Helper()
			select {
			case g := <-b.news:
				require.Equal(t, driver.Queued, g.Status, "asked to ask again")
			case <-time.After(5 * time.Second):
				require.FailNow(t, "nobody said that the subscription has changed")
			}
		}
		proxy.Cut()
		told()
		told()
		subscribed(t, rdb, s, 1)
		b.must(driver.Queued)
	})
}

// Rule 13, and promise 2 of package holdfast. From its very first wait on, a client that
// nobody can hear is one that has gone.
func TestClientIsHeardBeforeItsFirstWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		holds(t, open(t, rdb, s), "a", ttl)
		waits(t, open(t, rdb, s), "b", ttl)
		record := strings.Fields(rdb.HGet(context.Background(), key(s), "w:1").Val())
		require.Equal(t, "1", record[6], "heard")
	})
}

// Rule 13. A client that may not subscribe still waits, and asks often.
func TestWaitersPollWithoutASubscription(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(context.Background(), "acl", "setuser", "mute", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" }), s)
	holds(t, d, "a", ttl)
	b := join(t, d, "b", ttl)
	for range 3 {
		after := b.must(driver.Queued).RetryAfter
		require.GreaterOrEqual(t, after, 50*time.Millisecond)
		require.LessOrEqual(t, after, 250*time.Millisecond)
	}
}

// Nor can it be told that somebody waits for what it holds.
func TestNoticeSaysThatNobodyWillTell(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(context.Background(), "acl", "setuser", "mute", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" }), s)
	a := holds(t, d, "a", ttl)
	for _, somebody := range []bool{false, true} {
		wanted, err := d.Notice(t.Context(), a.lease())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Equal(t, somebody, wanted)
		join(t, d, "b", ttl).must(driver.Queued)
	}
	a.release()
	_, err := d.Notice(t.Context(), a.lease())
	require.ErrorIs(t, err, driver.ErrNotHeld)
}

// Rule 7. A user may run scripts and not publish in them. A grant stays a grant.
func TestRefusedPublishUndoesNoGrant(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(context.Background(), "acl", "setuser", "silent", "on", "nopass", "~*", "&*", "+@all", "-publish").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "silent", "any" }), s)
	a, b := holds(t, d, "a", ttl), waits(t, d, "b", ttl)
	a.release()
	require.Equal(t, "b", holder(t, d).Holder)
	b.must(driver.Granted)
	b.release()
}

// holdUp holds up the answer to the next script.
type holdUp struct {
	through
	handled chan struct{} // closed when the server has answered
	goOn    chan struct{}
}

func (h *holdUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		script := cmd.Name() == "evalsha" || cmd.Name() == "eval"
		if script && !strings.Contains(fmt.Sprint(cmd.Args()[3]), ":wake:") { // a ping goes its way
			close(h.handled)
			<-h.goOn
		}
		return err
	}
}

// Rule 13. Whenever there is a subscription again all waiters ask, for a grant may have been
// pushed when nobody listened. So does one whose answer is under way just then.
func TestWaiterWhoseAnswerIsUnderWayIsNotForgottenByAResubscription(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		direct := s.Client(t)
		holds(t, open(t, direct, s), "holder", ttl)
		e := newEars(t, s)
		w := join(t, warm(t, e, s.Prefix()), "waiter", ttl)
		t.Cleanup(func() { require.NoError(t, w.d.Close()) })
		w.must(driver.Queued)
		subscribed(t, direct, s, 1)

		e.cut()
		subscribed(t, direct, s, 0)
		require.Eventually(t, func() bool { return !w.d.Hears() }, 10*time.Second, time.Millisecond) // the server knows of it earlier
		late := &holdUp{handled: make(chan struct{}), goOn: make(chan struct{})}
		e.UniversalClient.AddHook(late)
		answer := make(chan driver.Grant)
		go func() { answer <- w.ask() }()
		<-late.handled
		e.mend()
		require.Eventually(t, w.d.Hears, 10*time.Second, time.Millisecond)
		close(late.goOn)
		after := (<-answer).RetryAfter
		require.Positive(t, after)
		require.Less(t, after, 50*time.Millisecond)
	})
}
