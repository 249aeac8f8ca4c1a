package token_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Whatever news comes in, a token is granted the lock only by an ask that it has sent, and
// trusts it for less than what is left of a TTL that began when that ask was sent.
func FuzzNewsIsTrustedNoLongerThanItsAsk(f *testing.F) {
	f.Add(uint8(driver.Granted), uint64(1), int64(7), int64(1), int64(0))
	f.Add(uint8(driver.Granted), uint64(2), int64(7), int64(1), int64(time.Second))
	f.Add(uint8(driver.Granted), uint64(0), int64(7), int64(1), int64(ttl))
	f.Add(uint8(driver.Granted), uint64(math.MaxUint64), int64(-1), int64(math.MinInt64), int64(10*ttl))
	f.Add(uint8(driver.Granted), uint64(1), int64(7), int64(1), int64(ttl-margin))
	f.Add(uint8(driver.Queued), uint64(1), int64(7), int64(1), int64(5))
	f.Add(uint8(driver.Lost), uint64(1), int64(7), int64(1), int64(5))
	f.Add(uint8(255), uint64(1), int64(7), int64(1), int64(5))
	f.Fuzz(func(t *testing.T, status uint8, n uint64, fence, fences, late int64) {
		alone(t, true, func(t *testing.T, s *store, c *contender) {
			w := c.wait(t.Context())
			first, sent := <-s.Asks, []time.Time{time.Now()}
			first.Queued()
			for end := time.Now().Add(time.Duration(uint64(late) % uint64(3*ttl))); ; {
				select {
				case ask := <-s.Asks:
					sent = append(sent, time.Now())
					ask.Queued()
					continue
				case <-time.After(time.Until(end)):
				}
				break
			}
			require.False(t, w.returned()) // all that is due at this moment was sent
			for len(s.Asks) > 0 {
				sent = append(sent, time.Now())
				(<-s.Asks).Queued()
			}
			defer func() { // the session ends when all are answered
				for len(s.Asks) > 0 {
					(<-s.Asks).Queued()
				}
			}()
			first.Wake(driver.Grant{Status: driver.Status(status), Ask: n, Fence: fence, Fences: fences})
			if w.returned() {
				require.NoError(t, w.err)
				require.Equal(t, driver.Granted, driver.Status(status))
				require.Equal(t, n, w.grant.Ask)
				require.GreaterOrEqual(t, n, uint64(1))
				require.LessOrEqual(t, n, uint64(len(sent)))
				left := time.Until(sent[n-1].Add(ttl))
				require.Equal(t, left-margin, w.trust.Left())
				require.Positive(t, w.trust.Left())
				return
			}
			for {
				ask := <-s.Asks // it goes on
				ask.Granted(8)
				if w.returned() {
					break
				}
			}
			require.NoError(t, w.err)
			require.EqualValues(t, 8, w.grant.Fence)
		})
	})
}
