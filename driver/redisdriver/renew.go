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
	return d.RenewEach(ctx, leases, func(int) {})
}

// RenewEach implements [driver.Prompter]. It takes one trip if nobody waits for the leases, and a
// second if somebody does, however many they are; more if something is refused, or has moved.
//
// The wrong version goes on with calls for as many, of which each handles some of those that others
// wait for, and leaves the rest out. So a batch takes a trip for every 32 of these, one after the
// other, and where a trip takes long all are lost.
func (d *Driver) RenewEach(ctx context.Context, leases []driver.Lease, renewed func(i int)) []error {
	errs := make([]error, len(leases))
	if len(leases) == 0 {
		return errs
	}
	var unserved, alone []int
	var longest time.Duration
	all := make([]int, len(leases))
	for i, l := range leases {
		all[i], longest = i, max(longest, l.TTL)
	}
	note := func(i int, a answer, err error) {
		more := false
		if err == nil {
			more, err = d.renewed(leases[i], a)
		}
		if errs[i] = err; err == nil {
			renewed(i)
		}
		if more {
			unserved = append(unserved, i)
		}
	}
	rdb := within(d.rdb, true, max(longest/renewTimeout, leastPatience))
	// trip renews some of the leases, so many in a call, and returns those that the calls left out.
	trip := func(which []int, size int) (left []int) {
		if len(which) == 0 {
			return nil
		}
		var calls []redisscript.Call
		batches := slices.Collect(slices.Chunk(which, size))
		for _, batch := range batches {
			calls = append(calls, d.renewals(leases, batch))
		}
		v := d.silence.watch(calls[0], nil)
		cmds := redisscript.RunAll(ctx, rdb, calls)
		d.silence.done(v, cmds[0].Err())
		for b, c := range cmds {
			batch, reply, err := batches[b], c.Val(), c.Err()
			if len(batch) == 1 {
				reply = []any{reply}
			}
			var replies []any
			if err == nil {
				replies, err = repliesFor(len(batch), reply)
			}
			if err != nil {
				for _, i := range batch {
					errs[i] = redisscript.Classify(err)
				}
				// What a server answers to one is about that one.
				if d.groups.separable(err) && (len(batch) > 1 || !redisscript.Answered(err)) {
					alone = append(alone, batch...)
				}
				continue
			}
			for j, i := range batch {
				switch {
				case replies[j] == nil:
					left = append(left, i) // that call has taken long enough
				case replies[j] == elsewhere:
					alone = append(alone, i)
				default:
					a, err := read(replies[j])
					note(i, a, err)
				}
			}
		}
		return left
	}

	first, size := d.lock(leases[0].Kind, leases[0].Name), 1
	g := d.groups.of(first.key)
	if g != nil && g.tried.Load() {
		size = maxLocks
	}
	left := trip(trip(all, size), maxLocks/contendedCost) // of which none should be left out

	// Each by itself, in a pipeline; and in none, should it be that which is not wanted.
	singly := append(left, alone...)
	alone = nil
	left = trip(singly, 1)
	alone = append(alone, left...)
	room := fewCallers
	if g != nil {
		room = max(1, len(alone)) // they share calls
	}
	d.renewAlone(ctx, leases, alone, room, note)

	var serving sync.WaitGroup
	for _, i := range unserved {
		serving.Go(func() { d.serve(ctx, d.lock(leases[i].Kind, leases[i].Name)) })
	}
	serving.Wait()
	return errs
}

// renewAlone renews leases in no pipeline, but as so many callers would at a time.
func (d *Driver) renewAlone(ctx context.Context, leases []driver.Lease, which []int, callers int, note func(i int, a answer, err error)) {
	var mu sync.Mutex
	var all sync.WaitGroup
	seats := make(chan struct{}, callers)
	for _, i := range which {
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			l := leases[i]
			a, err := d.run(ctx, request{renewScript, d.lock(l.Kind, l.Name), renewal(l), false})
			mu.Lock()
			defer mu.Unlock()
			note(i, a, err)
		})
	}
	all.Wait()
}

// renewals is the call that renews those leases.
func (d *Driver) renewals(leases []driver.Lease, which []int) redisscript.Call {
	if l := leases[which[0]]; len(which) == 1 {
		args := renewal(l)
		return d.call(renewScript, d.lock(l.Kind, l.Name), args[:]...)
	}
	return d.callFor(renewScript, len(which), contendedCost, func(j int) (any, []any) {
		l := leases[which[j]]
		args := renewal(l)
		return d.lock(l.Kind, l.Name).key, args[:]
	})
}

// renewal has the arguments that renew a lease.
func renewal(l driver.Lease) [3]any {
	return [...]any{l.Token, redisscript.Millis(l.TTL), tag(l.HolderTag)}
}

// renewed says what came of a renewal. more says that the queue has more to be served.
func (d *Driver) renewed(l driver.Lease, a answer) (more bool, err error) {
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
	if err == nil {
		err = d.news.Mute()
	}
	return status == statusWanted, err
}

// Confirm implements [driver.Confirmer] with the command WAIT, or WAITAOF for disks. It needs a
// [redis.Client], including one for failover, or a [redis.ClusterClient], and occupies a
// connection meanwhile.
func (d *Driver) Confirm(ctx context.Context, l driver.Lease, c driver.Confirmation) error {
	more := false
	args := renewal(l)
	heard := func(answer *redisscript.Command) error {
		a, err := read(answer.Val())
		if err == nil {
			more, err = d.renewed(l, a)
		}
		return err
	}
	err := redisscript.Confirm(ctx, d.rdb, d.call(renewScript, d.lock(l.Kind, l.Name), args[:]...), heard, c)
	if more {
		d.serve(ctx, d.lock(l.Kind, l.Name))
	}
	return err
}
