package getset_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Whatever a server answers, a call returns, and no error comes with a grant.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{9, 2, 1, 1, 1, 0})          // granted
	f.Add([]byte{9, 2, 1, 2, 3, 255, 255})   // busy
	f.Add([]byte{9, 2, 1, 0, 1, 0, 1, 1})    // released before
	f.Add([]byte{9, 3, 1, 1, 1, 1, 1, 1})    // too much
	f.Add([]byte{9, 2, 4, 1, 'x', 0})        // something else
	f.Add([]byte{1, 1, 1, 0, 1, 255, 0, 6})  // of a release
	f.Add([]byte{5, 1, 9, 2, 1, 1, 1, 0, 5}) // the script is not known
	f.Add([]byte{8, 2, 1, 1, 'a', 'b', 'c', 'd', 7, 1})
	f.Fuzz(func(t *testing.T, replies []byte) {
		ctx := t.Context()
		for _, owner := range []string{"", "o"} {
			for _, wait := range []bool{false, true} {
				d := getset.New(redistest.Replies(t, replies))
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
				require.NoError(t, d.Close())
			}
		}
	})
}
