package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Raw is what people write by hand, and the least that a lock on Redis can cost: two
// round trips.
var Raw = Contender{
	Name:  "raw",
	Role:  Limit,
	Setup: "go-redis; SET NX PX, again after 1 ms; EVALSHA of a script that deletes its own token",
	Sends: []string{"set", "eval", "evalsha"},
	Open: func(_ context.Context, s *Stage) (Process, error) {
		rdb := s.client()
		return &rawProcess{rdb, rdb, s.Prefix + "raw:"}, nil
	},
}

// RawPipelined is Raw with the commands of concurrent callers in one pipeline.
var RawPipelined = Contender{
	Name:  "raw pipelined",
	Role:  Limit,
	Setup: "as raw, through AutoPipeline of go-redis",
	Sends: Raw.Sends,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		rdb := s.client()
		ap, err := rdb.(autopipeliner).AutoPipeline()
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		return &rawProcess{rdb, ap, s.Prefix + "pipelined:"}, nil
	},
}

type autopipeliner interface {
	AutoPipeline() (*redis.AutoPipeliner, error)
}

type rawProcess struct {
	rdb    redis.UniversalClient
	cmd    redis.Cmdable
	prefix string
}

func (p *rawProcess) Close() error { return p.rdb.Close() } // and with it the pipeline

func (p *rawProcess) Mutex(_ context.Context, name string) (Locker, error) {
	return &rawLocker{p.cmd, []string{p.prefix + name}, rand.Text()}, nil
}

type rawLocker struct {
	cmd   redis.Cmdable
	keys  []string
	token string
}

func (l *rawLocker) Lock(ctx context.Context) error {
	for {
		err := l.cmd.SetArgs(ctx, l.keys[0], l.token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		if err := sleep(ctx, retryDelay); err != nil {
			return err
		}
	}
}

var rawUnlock = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func (l *rawLocker) Unlock(ctx context.Context) error {
	n, err := rawUnlock.Run(ctx, l.cmd, l.keys, l.token).Int()
	if err == nil && n == 0 {
		err = errors.New("raw: lock was not held any more")
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
