package etcdtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// inspector returns a look at the lock that contenders contend for.
func inspector(tb testing.TB, kind string, endpoint string) func() holdfast.Info {
	locks := holdfast.Open(etcddriver.New(connect(tb, endpoint)))
	tb.Cleanup(func() { require.NoError(tb, locks.Close()) })
	return func() holdfast.Info {
		var info holdfast.Info
		var err error
		switch kind {
		case "rwmutex":
			info, err = locks.RWMutex("contended").Inspect(tb.Context())
		case "semaphore":
			info, err = locks.Semaphore("contended", 3).Inspect(tb.Context())
		default:
			info, err = locks.Mutex("contended").Inspect(tb.Context())
		}
		require.NoError(tb, err)
		return info
	}
}
