package holdfast_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestGuardRefusesCommandsOfALeaseThatIsOver(t *testing.T) {
	redistest.OverCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		rdb := open(func(c *redis.Client) { c.AddHook(holdfast.GuardHook()) })
		locks := holdfast.New(rdb)
		defer locks.Close()
		ctx := t.Context()
		for name, end := range map[string]func(*holdfast.Lease){
			"released": func(l *holdfast.Lease) { require.NoError(t, l.Release(ctx)) },
			"lost": func(l *holdfast.Lease) {
				require.NoError(t, locks.Mutex("x").ForceUnlock(ctx))
				require.ErrorIs(t, l.Renew(ctx), holdfast.ErrLost)
			},
		} {
			l, err := locks.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			held := context.WithoutCancel(l.Context()) // it is the lease that counts
			require.NoError(t, rdb.Set(held, "value", "held", 0).Err(), name)
			inner, err := locks.Mutex("inner").Lease(held)
			require.NoError(t, err)
			within := context.WithoutCancel(inner.Context())
			end(l)

			require.ErrorIs(t, rdb.Set(held, "value", name, 0).Err(), holdfast.ErrLost)
			require.ErrorIs(t, rdb.Set(within, "value", name, 0).Err(), holdfast.ErrLost, "also within another")
			cmds, err := rdb.Pipelined(held, func(p redis.Pipeliner) error {
				p.Set(held, "value", name, 0)
				p.Get(held, "value")
				return nil
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
			for _, cmd := range cmds {
				require.ErrorIs(t, cmd.Err(), holdfast.ErrLost)
			}
			_, err = rdb.TxPipelined(held, func(p redis.Pipeliner) error { return p.Set(held, "value", name, 0).Err() })
			require.ErrorIs(t, err, holdfast.ErrLost)
			err = rdb.Watch(held, func(tx *redis.Tx) error { return tx.Set(held, "value", name, 0).Err() }, "value")
			require.ErrorIs(t, err, holdfast.ErrLost)

			assert.Equal(t, "held", rdb.Get(ctx, "value").Val(), "nothing was sent")
			require.NoError(t, inner.Release(within), "the library's own commands are not refused")
			again, err := locks.Mutex("x").Lease(held)
			require.NoError(t, err)
			require.NoError(t, again.Release(held))
		}
	})
}
