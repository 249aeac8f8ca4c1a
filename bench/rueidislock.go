package bench

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Rueidislock is the package rueidislock of github.com/redis/rueidis.
var Rueidislock = Contender{
	Name:  "rueidislock",
	Role:  Peer,
	Setup: "its own client, as it needs one; KeyMajority 1 and NoLoopTracking, as its README advises",
	Sends: scripts,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{s.Addr}},
			KeyPrefix:      s.Prefix + "rueidislock",
			KeyMajority:    1,
			NoLoopTracking: true,
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
