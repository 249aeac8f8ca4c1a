// Package foreigntest holds drivers that share their locks with other programs, by protocols
// that are not ours, to what these drivers have in common: mutexes only, one key for each,
// its name and content as the others have them.
package foreigntest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Protocol is what differs.
type Protocol struct {
	New       func(rdb redis.UniversalClient, prefix string) driver.Driver
	Abilities []drivertest.Ability // that the driver must have
	RWMutex   bool                 // whether it has that kind, too
	Owners    []string             // on whose behalf tokens ask; "" is nobody

	// Hold has another program hold the lock for so long, or without an end if that is 0.
	Hold    func(ctx context.Context, rdb *redis.Client, name string, left time.Duration) error
	Endless bool          // whether there are locks without an end
	Slack   time.Duration // by how much more may seem to be left

	// Shown is how such a program is shown as a holder.
	Shown *regexp.Regexp

	// Poll is when the driver has a waiter ask again. It is 0 if waiters hear of releases.
	Poll time.Duration

	// Left is how long a lock is held at least, by all that is in Redis.
	Left func(ctx context.Context, rdb *redis.Client, name string) (time.Duration, error)

	// Spoil makes a key of another type.
	Spoil func(ctx context.Context, rdb *redis.Client, name string) error

	// Resemble makes a key of the same type that is no lock. It is nil if there is none.
	Resemble func(ctx context.Context, rdb *redis.Client, name string) error

	// Counters is what keys begin with that stay for ever. It is empty if there are none.
	Counters string

	Scripts [][]string // the files of each in the folder script, without .lua
}

// retention is that of tokens that were given up.
const retention = time.Minute

func (p Protocol) opener(s *redistest.Server) drivertest.Open {
	return func(t *testing.T) driver.Driver { return p.New(s.Client(t), s.Prefix()) }
}

// Conformance runs drivertest on a real Redis.
func (p Protocol) Conformance(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	s := redistest.Real(t)
	t.Run("cases", func(t *testing.T) { // returns when all have
		for _, c := range drivertest.Cases() {
			if c.Form != "" && !redistest.Again() {
				continue // They are the same properties, which ConformanceInVirtualTime has in all forms.
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel() // most of them wait for leases to end
				c.Run(t, p.opener(s), p.Abilities...)
			})
		}
	})
	p.dropCounters(t, s)
	s.RequireTTLs(t, "")
}

// dropCounters deletes what stays for ever, so that all else can be required to go.
func (p Protocol) dropCounters(t *testing.T, s *redistest.Server) {
	if p.Counters == "" {
		return
	}
	rdb := s.Client(t)
	for _, key := range s.Keys(t, p.Counters) {
		require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), key).Val(), "%q would go", key)
		require.NoError(t, rdb.Del(t.Context(), key).Err())
	}
}

// ConformanceInVirtualTime is the same on miniredis, where it costs nothing to wait until
// the last key must have gone.
func (p Protocol) ConformanceInVirtualTime(t *testing.T) {
	if !redistest.Virtually() {
		t.Skip("runs in virtual time; HOLDFAST_LEGS=real")
	}
	passed := 0
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			skipped := false
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				defer func() { skipped = t.Skipped() }()
				c.Run(t, p.opener(s), p.Abilities...)
				p.dropCounters(t, s)
				s.RequireTTLs(t, "")
				time.Sleep(retention + 15*time.Second)
				s.RequireNoKeys(t, "", 0)
			})
			if skipped {
				t.Skip("for the reason above") // A bubble keeps that to itself.
			}
			passed++
		})
	}
	require.Greater(t, passed, 50, "almost nothing is left for this driver")
}

// Run runs what is not in drivertest, as subtests.
func (p Protocol) Run(t *testing.T) {
	t.Parallel()
	t.Run("HolderOfAnotherProgramIsShown", p.holderOfAnotherProgramIsShown)
	t.Run("ListNamesLocksAmongManyOtherKeys", p.listNamesLocksAmongManyOtherKeys)
	t.Run("ListAsksEveryMasterOfACluster", p.listAsksEveryMasterOfACluster)
	t.Run("OnlyListNeedsTheRightToScan", p.onlyListNeedsTheRightToScan)
	t.Run("LeaseIsNeverShortened", p.leaseIsNeverShortened)
	t.Run("ForeignKeysAreRefused", p.foreignKeysAreRefused)
	t.Run("OtherKindsAreRefused", p.otherKindsAreRefused)
	t.Run("RenewalsSurviveARestart", p.renewalsSurviveARestart)
	t.Run("ReleaseWorksWhenMemoryIsFull", p.releaseWorksWhenMemoryIsFull)
	t.Run("Cluster", p.cluster)
	t.Run("NewPanicsWithoutAUsableClient", p.newPanicsWithoutAUsableClient)
	t.Run("ScriptHeadersNameWhatTheirBodiesUse", p.scriptHeadersNameWhatTheirBodiesUse)
}

const ttl = 10 * time.Second

// FuzzReplies is about servers that answer anything: a call returns, and no error comes with
// a grant.
func (p Protocol) FuzzReplies(f *testing.F) {
	f.Add([]byte{9, 2, 1, 1, 1, 0})            // granted
	f.Add([]byte{9, 2, 1, 2, 3, 255, 255})     // busy
	f.Add([]byte{9, 3, 4, 0, 1, 9, 4, 1, 'x'}) // a holder
	f.Add([]byte{9, 2, 1, 0, 1, 0, 1, 1})      // released before
	f.Add([]byte{9, 3, 1, 1, 1, 1, 1, 1})      // too much
	f.Add([]byte{9, 2, 4, 1, 'x', 0})          // something else
	f.Add([]byte{1, 1, 1, 0, 1, 255, 0, 6})    // of a release
	f.Add([]byte{5, 1, 9, 2, 1, 1, 1, 0, 5})   // the script is not known
	f.Add([]byte{8, 2, 1, 1, 'a', 'b', 'c', 'd', 7, 1})
	f.Fuzz(func(t *testing.T, replies []byte) {
		ctx := t.Context()
		for _, owner := range []string{"", "o"} {
			for _, wait := range []bool{false, true} {
				d := p.New(redistest.Replies(t, replies), "")
				r := &driver.Request{Kind: driver.Mutex, Name: "x", Token: "t", Ask: 1, TTL: time.Second, Wait: wait, Owner: owner}
				g, err := d.Acquire(ctx, r)
				if err != nil {
					require.Zero(t, g)
				}
				l := driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL, Owner: owner, Unsettled: wait}
				require.Len(t, d.Renew(ctx, []driver.Lease{l, l}), 2)
				_ = d.Release(ctx, l)
				if forcer, ok := driver.As[driver.Forcer](d); ok {
					_ = forcer.ForceRelease(ctx, r.Kind, r.Name)
				}
				info, err := d.(driver.Inspector).Inspect(ctx, r.Kind, r.Name)
				if err != nil {
					require.Empty(t, info.Holders)
				}
				require.NoError(t, d.Close())
			}
		}
	})
}

// Lease returns a lease of 10 s.
func Lease(name, token string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: name, Token: token, TTL: ttl}
}

// Request asks for that lease.
func Request(name, token string) *driver.Request { return request(Lease(name, token)) }

func lease(name, owner string) driver.Lease {
	l := Lease(name, "me")
	l.Owner = owner
	return l
}

// request asks for the lease.
func request(l driver.Lease) *driver.Request {
	return &driver.Request{Kind: l.Kind, Name: l.Name, Token: l.Token, Owner: l.Owner, Ask: 1, TTL: l.TTL}
}

func granted(t *testing.T, d driver.Driver, r *driver.Request) {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	require.NoError(t, err, "%q", r.Name)
	require.Equal(t, driver.Granted, g.Status, "%q", r.Name)
}

// Late asks and renewals, with the TTL of another time, take nothing away.
func (p Protocol) leaseIsNeverShortened(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb := p.New(s.Client(t), ""), s.Client(t)
		for _, owner := range p.Owners {
			l := lease(s.Prefix()+"a"+owner, owner)
			isLong := func() {
				t.Helper()
				left, err := p.Left(t.Context(), rdb, l.Name)
				require.NoError(t, err)
				require.Greater(t, left, 50*time.Minute)
			}
			longer, shorter := l, l
			longer.TTL, shorter.TTL = time.Hour, time.Second
			granted(t, d, request(l))
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{longer})[0])
			granted(t, d, request(l))
			isLong()
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{l})[0])
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{shorter})[0])
			isLong()
			require.NoError(t, d.Release(t.Context(), l))
		}
	})
}

func inspect(t *testing.T, d driver.Driver, name string) driver.Info {
	t.Helper()
	info, err := d.(driver.Inspector).Inspect(t.Context(), driver.Mutex, name)
	require.NoError(t, err, "%q", name)
	require.Equal(t, name, info.Name)
	return info
}

func list(t *testing.T, d driver.Driver, prefix string) (names []string) {
	t.Helper()
	require.NoError(t, d.(driver.Lister).List(t.Context(), prefix, func(k driver.Kind, name string) error {
		require.Equal(t, driver.Mutex, k)
		names = append(names, name)
		return nil
	}))
	slices.Sort(names)
	return names
}

// Who it is, and the time left, in each way in which a program can learn of them.
func (p Protocol) holderOfAnotherProgramIsShown(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), p.New(s.Client(t), "")
		locks := holdfast.Open(d)
		defer func() { require.NoError(t, locks.Close()) }()
		const endless = time.Duration(math.MaxInt64)
		for i, c := range []struct{ left, least, most, again time.Duration }{ // again is when to ask again at the latest
			{0, endless, endless, 0},
			{time.Minute, 50 * time.Second, time.Minute + p.Slack, time.Minute + p.Slack},
			{1000 * time.Hour, 999 * time.Hour, endless, driver.MaxTTL},
		} {
			if c.left == 0 && !p.Endless {
				continue
			}
			name := s.Prefix() + string(rune('a'+i))
			require.NoError(t, p.Hold(t.Context(), rdb, name, c.left))
			info, err := locks.Mutex(name).Inspect(t.Context())
			require.NoError(t, err)
			require.Empty(t, info.Queue)
			require.Len(t, info.Holders, 1)
			h := info.Holders[0]
			require.Regexp(t, p.Shown, h.Holder)
			require.GreaterOrEqual(t, h.TimeLeft, c.least)
			require.LessOrEqual(t, h.TimeLeft, c.most)
			require.Equal(t, driver.Holder{Holder: h.Holder, TimeLeft: h.TimeLeft}, h, "nothing else is known")

			_, err = locks.Mutex(name).TryLease(t.Context())
			var taken *holdfast.LockError
			require.ErrorAs(t, err, &taken)
			require.ErrorIs(t, err, holdfast.ErrLocked)
			require.Equal(t, h.Holder, taken.Holder)
			require.Zero(t, taken.HeldFor)
			for _, owner := range p.Owners {
				r := request(lease(name, owner))
				g, err := d.Acquire(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, driver.Busy, g.Status)
				require.Equal(t, h.Holder, g.Holder)
				require.GreaterOrEqual(t, g.RetryAfter, min(c.least, c.again))
				require.LessOrEqual(t, g.RetryAfter, c.again)
				if owner == "" && p.Poll > 0 {
					r.Token, r.Wait = "waiter", true
					g, err = d.Acquire(t.Context(), r)
					require.NoError(t, err)
					require.Equal(t, driver.Grant{Status: driver.Busy, RetryAfter: p.Poll, Holder: h.Holder}, g)
				}
			}
		}
	})
}

func (p Protocol) listNamesLocksAmongManyOtherKeys(t *testing.T) {
	s := redistest.Shared(t)
	rdb, d := s.Client(t), p.New(s.Client(t), s.Prefix())
	const others = 10_000
	for i := range others {
		make, name := p.Spoil, fmt.Sprintf("%sother %d", s.Prefix(), i)
		if p.Resemble != nil && i%2 == 0 {
			make = p.Resemble
		}
		require.NoError(t, make(t.Context(), rdb, name))
	}
	require.Empty(t, list(t, d, ""))
	for _, owner := range p.Owners {
		l := lease("mine"+owner, owner)
		granted(t, d, request(l))
	}
	given := lease("given up", "")
	given.Unsettled = true
	require.ErrorIs(t, d.Release(t.Context(), given), driver.ErrNotHeld)
	require.NoError(t, p.Hold(t.Context(), rdb, s.Prefix()+"other[*]", time.Minute))
	require.NoError(t, p.Hold(t.Context(), rdb, s.Prefix(), time.Minute)) // its name would be empty
	var want []string
	for _, owner := range p.Owners {
		want = append(want, "mine"+owner)
	}
	require.Equal(t, append(want, "other[*]"), list(t, d, ""))
	require.Equal(t, []string{"other[*]"}, list(t, d, "other["))
	for _, name := range list(t, p.New(s.Client(t), ""), "") { // the keys beside the locks are none
		require.NotContains(t, name, "holdfast:settled:{"+s.Prefix())
		require.NotContains(t, name, "holdfast:getset:{"+s.Prefix())
	}

	enough, calls := errors.New("enough"), 0
	err := d.(driver.Lister).List(t.Context(), "", func(driver.Kind, string) error { calls++; return enough })
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)
}

func (p Protocol) listAsksEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	rdb := c.Client(t)
	d := p.New(rdb, "")
	defer func() { require.NoError(t, d.Close()) }()
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("lock %03d", i)
		granted(t, d, request(lease(name, "")))
		require.Len(t, inspect(t, d, name).Holders, 1)
		want = append(want, name)
	}
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		// A name beside which there can be no key of ours.
		_ = p.Hold(ctx, node, "a}b", time.Minute)
		n, err := node.DBSize(ctx).Result()
		if err == nil && n >= 100 {
			err = errors.New("one master has all locks")
		}
		return err
	}))
	require.Subset(t, list(t, d, "lock"), want)
	require.Subset(t, want, list(t, d, "lock"))
	_ = list(t, d, "")
}

// A user may do what locks need, and nothing more.
func (p Protocol) onlyListNeedsTheRightToScan(t *testing.T) {
	s := redistest.Real(t)
	admin := s.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-scan", "-type", "-ttl").Err())
	d := p.New(s.Client(t, func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }), "")
	defer func() { require.NoError(t, d.Close()) }()
	granted(t, d, request(lease("a", "")))
	require.Equal(t, "me", inspect(t, d, "a").Holders[0].Holder)
	look := func() error {
		return d.(driver.Lister).List(t.Context(), "", func(driver.Kind, string) error { return nil })
	}
	err := look()
	require.ErrorContains(t, err, "NOPERM")
	require.NotErrorIs(t, err, driver.ErrTransient)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "locks", "+scan").Err())
	require.NoError(t, look())
}

func (p Protocol) foreignKeysAreRefused(t *testing.T) {
	s := redistest.Shared(t) // miniredis words it as a fault of the script
	d, name := p.New(s.Client(t), ""), s.Prefix()+"a"
	require.NoError(t, p.Spoil(t.Context(), s.Client(t), name))
	for _, owner := range p.Owners {
		_, err := d.Acquire(t.Context(), request(lease(name, owner)))
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.ErrorContains(t, err, "WRONGTYPE")
	}
	look := func(name string) {
		t.Helper()
		info, err := d.(driver.Inspector).Inspect(t.Context(), driver.Mutex, name)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.Empty(t, info.Holders)
	}
	look(name)
	if p.Resemble != nil {
		require.NoError(t, p.Resemble(t.Context(), s.Client(t), name+"b"))
		look(name + "b")
	}
}

func (p Protocol) otherKindsAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := p.New(s.Client(t), "")
		kinds := []driver.Kind{driver.Semaphore}
		if !p.RWMutex {
			kinds = append(kinds, driver.RWMutex)
		}
		for _, k := range kinds {
			l := lease(s.Prefix()+"a", "")
			l.Kind = k
			_, err := d.Acquire(t.Context(), request(l))
			errs := []error{err, d.Release(t.Context(), l), d.Renew(t.Context(), []driver.Lease{l})[0]}
			_, err = d.(driver.Inspector).Inspect(t.Context(), k, l.Name)
			errs = append(errs, err)
			if f, ok := d.(driver.Forcer); ok {
				errs = append(errs, f.ForceRelease(t.Context(), k, l.Name))
			}
			if c, ok := d.(driver.Confirmer); ok {
				errs = append(errs, c.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: time.Second}))
			}
			for _, err := range errs {
				require.ErrorIs(t, err, errors.ErrUnsupported)
				require.ErrorIs(t, err, driver.ErrNotExecuted)
			}
		}
		locks := holdfast.Open(d)
		defer func() { require.NoError(t, locks.Close()) }()
		_, err := locks.Semaphore(s.Prefix()+"a", 1).Lease(t.Context(), 1)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// A server that was restarted knows no script.
func (p Protocol) renewalsSurviveARestart(t *testing.T) {
	s := redistest.Real(t, "--appendonly", "yes", "--appendfsync", "always")
	d := p.New(s.Client(t), "")
	var leases []driver.Lease
	for _, owner := range p.Owners {
		a, missing, b := lease("a"+owner, owner), lease("c"+owner, owner), lease("b"+owner, owner)
		granted(t, d, request(a))
		granted(t, d, request(b))
		leases = append(leases, a, missing, b)
	}
	s.Restart()
	errs := d.Renew(t.Context(), leases)
	require.Len(t, errs, len(leases))
	for i, err := range errs {
		if leases[i].Name[0] == 'c' {
			require.ErrorIs(t, err, driver.ErrNotHeld)
		} else {
			require.NoError(t, err, leases[i].Name)
		}
	}
}

// A holder must be able to give a lock up, and for good.
func (p Protocol) releaseWorksWhenMemoryIsFull(t *testing.T) {
	s := redistest.Real(t)
	rdb, d := s.Client(t), p.New(s.Client(t), "")
	for _, owner := range p.Owners {
		a, b := lease("a"+owner, owner), lease("b"+owner, owner)
		granted(t, d, request(a))
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		if owner == "" { // that of an owner first counts, which needs no memory
			_, err := d.Acquire(t.Context(), request(b))
			require.ErrorIs(t, err, driver.ErrTransient)
		}
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{a})[0])
		a.Unsettled, b.Unsettled = true, true
		require.NoError(t, d.Release(t.Context(), a))
		require.ErrorIs(t, d.Release(t.Context(), b), driver.ErrNotHeld)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		for _, l := range []driver.Lease{a, b} {
			_, err := d.Acquire(t.Context(), request(l))
			require.ErrorIs(t, err, driver.ErrNotHeld, l.Name)
			l.Token, l.Owner = "you", ""
			granted(t, d, request(l))
		}
	}
}

// On a Cluster the keys of a script have to be in one slot.
func (p Protocol) cluster(t *testing.T) {
	t.Parallel() // it takes 2 s until a Cluster works
	s := redistest.Real(t, "--cluster-enabled", "yes")
	require.NoError(t, s.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { require.NoError(t, rdb.Close()) }()
	require.Eventually(t, func() bool { return rdb.Set(t.Context(), "ready", "", 0).Err() == nil },
		10*time.Second, 10*time.Millisecond)
	d := p.New(rdb, "")
	node := func(d driver.Driver) string { return d.(driver.Router).Node(driver.Mutex, "orders:42") }
	require.NotEmpty(t, node(d))
	require.Empty(t, node(p.New(s.Client(t), "")), "there is only one")
	for _, owner := range p.Owners {
		for _, name := range []string{"orders:42", "{a}b", "a{b}c{d}", "a{b", "{", "a{{b}c", "é\n{x}}"} {
			l := lease(name+owner, owner)
			granted(t, d, request(l))
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{l})[0])
			l.Unsettled = true
			require.NoError(t, d.Release(t.Context(), l), "%q", name)
			_, err := d.Acquire(t.Context(), request(l))
			require.ErrorIs(t, err, driver.ErrNotHeld, "%q", name)
		}
		for _, name := range []string{"a}b", "{}", "{}a{b}"} {
			_, err := d.Acquire(t.Context(), request(lease(name, owner)))
			require.ErrorContains(t, err, "CROSSSLOT", "%q", name)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.NotErrorIs(t, err, driver.ErrTransient)
		}
	}
	require.NoError(t, d.Close())
}

func (p Protocol) newPanicsWithoutAUsableClient(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { require.NoError(t, ring.Close()) }()
	require.Panics(t, func() { p.New(nil, "") })
	require.Panics(t, func() { p.New((*redis.Client)(nil), "") })
	require.Panics(t, func() { p.New(ring, "") })
}

var (
	argument = regexp.MustCompile(`\b(?:KEYS|ARGV)\[\d+\]`)
	declared = regexp.MustCompile(`(?m)^-- ((?:KEYS|ARGV)\[\d+\])  `)
	comment  = regexp.MustCompile(`(?m)(^|\s)--.*$`)
)

// A header that does not fit its script misleads more than none. It is that of the last
// part, and says what all parts use.
func (p Protocol) scriptHeadersNameWhatTheirBodiesUse(t *testing.T) {
	require.NotEmpty(t, p.Scripts)
	for _, parts := range p.Scripts {
		t.Run(parts[len(parts)-1], func(t *testing.T) {
			var used []string
			var text string
			for _, part := range parts {
				b, err := os.ReadFile("script/" + part + ".lua")
				require.NoError(t, err)
				text = string(b)
				require.True(t, strings.HasPrefix(text, "-- "+part+".lua: "), "says what it is")
				used = append(used, argument.FindAllString(comment.ReplaceAllString(text, ""), -1)...)
			}
			require.Contains(t, text, "\n-- Returns ")
			var names []string
			for _, m := range declared.FindAllStringSubmatch(text, -1) {
				names = append(names, m[1])
			}
			slices.Sort(used)
			require.ElementsMatch(t, names, slices.Compact(used))
		})
	}
}
