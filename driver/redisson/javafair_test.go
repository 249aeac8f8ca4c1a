package redisson_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// turn is Redisson's fairLockWaitTimeout.
const turn = 5 * time.Minute

// fairState is what RedissonFairLock.java keeps of a lock. Its methods are what the steps of 4.7.1
// make of it: tryLockInnerAsync, acquireFailedAsync and unlockInnerAsync.
type fairState struct {
	holders map[string]int64   // how often the holder holds
	left    time.Duration      // of the lease, if there is a holder
	queue   []string           // those that wait
	ends    map[string]float64 // when each of them loses its place, in ms since 1970
	now     float64            // by the clock of the program
}

// drop removes those at the head whose time has passed. The others keep their times.
func (s *fairState) drop() {
	for len(s.queue) > 0 {
		ends, ok := s.ends[s.queue[0]]
		if !ok || ends > s.now {
			return
		}
		delete(s.ends, s.queue[0])
		s.queue = s.queue[1:]
	}
}

// tryLock reports whether a thread has the lock now, or else when it asks again. It waits, unless
// it tries only.
func (s *fairState) tryLock(me string, wait bool) (retry time.Duration, locked bool) {
	s.drop()
	switch {
	case len(s.holders) == 0 && (len(s.queue) == 0 || s.queue[0] == me):
		s.queue = s.queue[min(1, len(s.queue)):]
		delete(s.ends, me)
		for waiter := range s.ends {
			s.ends[waiter] -= float64(turn.Milliseconds())
		}
		s.holders[me], s.left = 1, long
		return 0, true
	case s.holders[me] > 0:
		s.holders[me]++
		s.left = long
		return 0, true
	case !wait:
		return 0, false
	}
	if _, waits := s.ends[me]; waits {
		return max(s.left, 0), false
	}
	retry = s.left
	if n := len(s.queue); n > 0 {
		if ends, ok := s.ends[s.queue[n-1]]; ok {
			retry = time.Duration(ends-s.now) * time.Millisecond
		}
	}
	s.ends[me] = s.now + float64((retry + turn).Milliseconds())
	s.queue = append(s.queue, me)
	return retry, false
}

// giveUp is the end of a wait that was too long.
func (s *fairState) giveUp(me string) {
	at := slices.Index(s.queue, me)
	if at >= 0 {
		for _, waiter := range s.queue[at+1:] {
			s.ends[waiter] -= float64(turn.Milliseconds())
		}
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	delete(s.ends, me)
}

// unlock returns whom to tell that the lock is free.
func (s *fairState) unlock(me string) (next string, err error) {
	s.drop()
	switch {
	case len(s.holders) == 0: // The lease has ended.
	case s.holders[me] == 0:
		return "", errNotTheirs
	case s.holders[me] > 1:
		s.holders[me]--
		s.left = long
		return "", nil
	}
	clear(s.holders)
	if len(s.queue) > 0 {
		next = s.queue[0]
	}
	return next, nil
}

func fairKeys(name string) (lock, queue, ends string) {
	return name, prefixed("redisson_lock_queue", name), prefixed("redisson_lock_timeout", name)
}

// readFair is the state of a lock in Redis, whose keys are watched.
func readFair(ctx context.Context, rdb *redis.Tx, name string) (*fairState, error) {
	lock, queue, ends := fairKeys(name)
	var fields *redis.MapStringStringCmd
	var left *redis.DurationCmd
	var waiters *redis.StringSliceCmd
	var times *redis.ZSliceCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // MULTI would end WATCH
		fields, left = p.HGetAll(ctx, lock), p.PTTL(ctx, lock)
		waiters, times = p.LRange(ctx, queue, 0, -1), p.ZRangeWithScores(ctx, ends, 0, -1)
		return nil
	})
	s := &fairState{holders: map[string]int64{}, ends: map[string]float64{}, now: float64(time.Now().UnixMilli())}
	if err != nil {
		return s, err
	}
	for holder, times := range fields.Val() {
		n, err := strconv.ParseInt(times, 10, 64)
		if err != nil {
			return s, err
		}
		s.holders[holder] = n
	}
	s.left, s.queue = left.Val(), waiters.Val()
	for _, z := range times.Val() {
		s.ends[z.Member.(string)] = z.Score
	}
	return s, nil
}

// write has Redis keep what a step made of a state.
func (s *fairState) write(ctx context.Context, p redis.Pipeliner, name string, before *fairState) {
	lock, queue, ends := fairKeys(name)
	if !maps.Equal(s.holders, before.holders) {
		p.Del(ctx, lock)
		for holder, times := range s.holders {
			p.HSet(ctx, lock, holder, times)
			p.PExpire(ctx, lock, s.left)
		}
	}
	if !slices.Equal(s.queue, before.queue) || !maps.Equal(s.ends, before.ends) {
		p.Del(ctx, queue, ends)
		for _, waiter := range s.queue {
			p.RPush(ctx, queue, waiter)
		}
		for waiter, at := range s.ends {
			p.ZAdd(ctx, ends, redis.Z{Score: at, Member: waiter})
		}
	}
}

// fairly takes a step of a thread of Java at once, as its script does. It returns whom to tell.
func (j java) fairly(ctx context.Context, name string, step func(*fairState) (tell string, err error)) error {
	lock, queue, ends := fairKeys(name)
	for {
		err := j.rdb.Watch(ctx, func(tx *redis.Tx) error {
			before, err := readFair(ctx, tx, name)
			if err != nil {
				return err
			}
			s := *before
			s.holders, s.queue, s.ends = maps.Clone(s.holders), slices.Clone(s.queue), maps.Clone(s.ends)
			tell, err := step(&s)
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				if s.write(ctx, p, name, before); tell != "" {
					p.Publish(ctx, channel(name)+":"+tell, "0")
				}
				return nil
			})
			return err
		}, lock, queue, ends)
		if !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
}

// tryFair asks once.
func (j java) tryFair(ctx context.Context, name string, wait bool) (retry time.Duration, locked bool, err error) {
	err = j.fairly(ctx, name, func(s *fairState) (string, error) {
		retry, locked = s.tryLock(j.id(), wait)
		return "", nil
	})
	return retry, locked, err
}

func (j java) unlockFair(ctx context.Context, name string) error {
	return j.fairly(ctx, name, func(s *fairState) (string, error) { return s.unlock(j.id()) })
}

func (j java) giveUpFair(ctx context.Context, name string) error {
	return j.fairly(ctx, name, func(s *fairState) (string, error) {
		s.giveUp(j.id())
		return "", nil
	})
}

// lockFair is Redisson's lock(): a first ask, and then one for each message on the channel of the
// thread, and when the time of the last answer has passed. It calls refused when it begins to wait.
func (j java) lockFair(ctx context.Context, name string, refused func()) (err error) {
	_, locked, err := j.tryFair(ctx, name, true)
	if err != nil || locked {
		return err
	}
	ps := j.rdb.Subscribe(ctx, channel(name)+":"+j.id())
	defer func() { err = errors.Join(err, ps.Close()) }()
	if _, err := ps.Receive(ctx); err != nil {
		return err
	}
	refused()
	for {
		retry, locked, err := j.tryFair(ctx, name, true)
		if err != nil || locked {
			return err
		}
		// Redisson asks again and again while the answer is 0: the lock is free, and another is first.
		_, err = ps.ReceiveTimeout(ctx, max(100*time.Millisecond, retry))
		var timeout interface{ Timeout() bool }
		if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			return err
		}
	}
}
