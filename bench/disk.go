package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// HoldfastFsync is this library when it trusts no grant that is not on the disk.
var HoldfastFsync = Contender{
	Name:  "holdfast fsync",
	Role:  Ours,
	Setup: "New(rdb, WithFsync(0, 5*time.Second)); Lease and Release",
	Sends: append([]string{"waitaof"}, scripts...),
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		return openHoldfast(ctx, s, holdfast.WithFsync(0, 5*time.Second))
	},
}

// Disk are works on a server that writes what it does to its disk: what it costs to wait for that.
var Disk = []Work{disk("everysec", 5*time.Second), disk("always", 300*time.Millisecond)}

func disk(appendfsync string, time time.Duration) Work {
	alone := Uncontended
	return Work{
		Name:  "Disk/" + appendfsync,
		Title: "Lock and unlock, uncontended, with appendfsync " + appendfsync,
		About: "Valkey with an append-only file, one client, one goroutine. WithFsync waits until the grant is on the disk. With everysec " +
			"a server that does so takes most of a second; Valkey up to 9.1 answers at once, and has not.",
		Contenders: []Contender{Holdfast, HoldfastFsync, Raw},
		Columns:    alone.Columns,
		Turns:      3,
		Time:       time,
		Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
			return alone.Enter(ctx, s.OnDisk(appendfsync), c)
		},
	}
}

// appending starts a Valkey that writes what it does to its disk, once it is wanted.
func appending(tb testing.TB, appendfsync string) func() []*redistest.Server {
	return sync.OnceValue(func() []*redistest.Server {
		return []*redistest.Server{redistest.Valkey(tb, "--appendonly", "yes", "--appendfsync", appendfsync)}
	})
}

// OnDisk returns the same stage with a Valkey for Redis, which writes what it does to its disk.
func (s *Stage) OnDisk(appendfsync string) *Stage {
	d := *s
	d.servers = s.disks[appendfsync]()
	d.Addr, d.zookeeper = d.servers[0].Addr(), nil
	d.NoEtcd = "this is a work on Redis"
	return &d
}
