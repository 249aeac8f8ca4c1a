package redisdriver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// renewTimeout is the part of a TTL after which a renewal is given up. A second one can then
// take the only connection that there may be, before the lease is over.
const renewTimeout = 3

// Renew implements [driver.Driver]. All leases go in one pipeline, each of its commands for many
// of them; the caller sees to it that they live on one node.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var unserved, apart []int
	note := func(i int, reply any) {
		var more bool
		if more, errs[i] = d.renewed(leases[i], reply); more {
			unserved = append(unserved, i)
		}
	}
	left := make([]int, len(leases)) // to be renewed
	for i := range leases {
		left[i] = i
	}
	var longest time.Duration
	for _, l := range leases {
		longest = max(longest, l.TTL)
	}
	rdb := within(d.rdb, true, max(longest/renewTimeout, leastPatience))
	for len(left) > 0 {
		size, first := 1, leases[left[0]]
		if g := d.groups.of(d.lock(first.Kind, first.Name).key); g != nil && g.tried.Load() {
			size = most
		}
		var calls []redisscript.Call
		batches := slices.Collect(slices.Chunk(left, size))
		for _, batch := range batches {
			calls = append(calls, d.renewals(leases, batch))
		}
		left = nil
		v := d.silence.watch(calls[0])
		cmds := redisscript.RunAll(ctx, rdb, calls)
		d.silence.done(v, cmds[0].Err() == nil)
		for b, c := range cmds {
			batch, reply, err := batches[b], c.Val(), c.Err()
			if len(batch) == 1 {
				reply = []any{reply}
			}
			var replies []any
			if err == nil {
				replies, err = repliesFor(len(batch), reply) // some at least, so this ends
			}
			if err != nil {
				for _, i := range batch {
					errs[i] = redisscript.Classify(err)
				}
				// What a server answers to one is about that one.
				if d.groups.separable(err) && (len(batch) > 1 || !redisscript.Answered(err)) {
					apart = append(apart, batch...)
				}
				continue
			}
			for j, i := range batch {
				switch {
				case replies[j] == nil:
					left = append(left, i) // that call has taken long enough
				case replies[j] == elsewhere:
					apart = append(apart, i)
				default:
					note(i, replies[j])
				}
			}
		}
	}
	d.renewApart(ctx, leases, apart, errs, note)
	for _, i := range unserved {
		d.serve(ctx, d.lock(leases[i].Kind, leases[i].Name))
	}
	return errs
}

// renewApart renews leases each by itself whose call for many, or pipeline, has failed, some at a
// time.
func (d *Driver) renewApart(ctx context.Context, leases []driver.Lease, which []int, errs []error, note func(i int, reply any)) {
	for some := range slices.Chunk(which, few) {
		replies := make([]any, len(some))
		var all sync.WaitGroup
		for j, i := range some {
			all.Go(func() { replies[j], errs[i] = d.value(ctx, d.renewals(leases, []int{i})) })
		}
		all.Wait()
		for j, i := range some {
			if errs[i] == nil {
				note(i, replies[j])
			}
		}
	}
}

// renewals is the call that renews those leases.
func (d *Driver) renewals(leases []driver.Lease, which []int) redisscript.Call {
	if l := leases[which[0]]; len(which) == 1 {
		return d.call(renewScript, d.lock(l.Kind, l.Name), renewal(l)...)
	}
	return d.callFor(renewScript, len(which), func(j int) (any, []any) {
		l := leases[which[j]]
		return d.lock(l.Kind, l.Name).key, renewal(l)
	})
}

// renewal has the arguments that renew a lease.
func renewal(l driver.Lease) []any {
	return []any{l.Token, redisscript.Millis(l.TTL), tag(l.HolderTag)}
}

// renewed reads what came of a renewal. more says that the queue has more to be served.
func (d *Driver) renewed(l driver.Lease, reply any) (more bool, err error) {
	a, err := read(reply)
	if err != nil {
		return false, err
	}
	if a.wanted() {
		d.news.Wanted(l.Token)
	}
	if a.status() == statusNeither {
		err = driver.ErrNotHeld
	}
	return a.more(), err
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Notice implements [driver.Notifier].
func (d *Driver) Notice(ctx context.Context, l driver.Lease) (wanted bool, err error) {
	d.news.Heed(ctx, l.Token)
	status, err := d.change(ctx, noticeScript, l.Kind, l.Name, l.Token)
	return status == statusWanted, err
}

// Extend implements [driver.Extender].
func (d *Driver) Extend(ctx context.Context, l driver.Lease, fences int64) (driver.Grant, error) {
	lock := d.lock(l.Kind, l.Name)
	a, err := d.only(ctx, extendScript, lock, l.Token, redisscript.Millis(l.TTL), useful(fences))
	if err != nil {
		return driver.Grant{}, err
	}
	if _, more := a.acquired(); more {
		d.serve(ctx, lock)
	}
	if a.status() == statusNeither {
		return driver.Grant{}, driver.ErrNotHeld
	}
	fence, numbers := a.granted()
	return driver.Grant{Status: driver.Granted, Fence: fence, Fences: numbers, Wanted: a.status() == statusWanted}, nil
}

// Confirm implements [driver.Confirmer] with the command WAIT, or WAITAOF for disks. It needs a
// [redis.Client], including one for failover, or a [redis.ClusterClient], and occupies a
// connection meanwhile.
func (d *Driver) Confirm(ctx context.Context, l driver.Lease, c driver.Confirmation) error {
	more := false
	read := func(answer *redisscript.Command) (err error) {
		more, err = d.renewed(l, answer.Val())
		return err
	}
	err := redisscript.Confirm(ctx, d.rdb, d.call(renewScript, d.lock(l.Kind, l.Name), renewal(l)...), read, c)
	if more {
		d.serve(ctx, d.lock(l.Kind, l.Name))
	}
	return err
}
