package bench

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Rueidislock is the package rueidislock of github.com/redis/rueidis.
var Rueidislock = Contender{
	Name:  "rueidislock",
	Role:  Peer,
	Setup: "its own client, as it needs one; KeyMajority 1 and NoLoopTracking, as its README advises; TryNextAfter 1 s instead of 20 ms, which a busy machine exceeds",
	Sends: scripts,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: s.addrs()},
			KeyPrefix:      s.Prefix + "rueidislock",
			KeyMajority:    1,
			NoLoopTracking: true,
			TryNextAfter:   time.Second, // a client that misses the default of 20 ms may wait for ever
		})
		return rueidislockProcess{locker}, err
	},
}

type rueidislockProcess struct{ locker rueidislock.Locker }

func (p rueidislockProcess) Close() error {
	p.locker.Close()
	return nil
}

func (p rueidislockProcess) Mutex(_ context.Context, name string) (Locker, error) {
	return &rueidislockLocker{locker: p.locker, name: name}, nil
}

type rueidislockLocker struct {
	locker rueidislock.Locker
	name   string
	cancel context.CancelFunc
}

func (l *rueidislockLocker) Lock(ctx context.Context) (err error) {
	_, l.cancel, err = l.locker.WithContext(ctx, l.name)
	return err
}

func (l *rueidislockLocker) Unlock(context.Context) error {
	l.cancel()
	return nil
}
