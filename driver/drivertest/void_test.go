package drivertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// wasLate makes a run one in which the machine was late.
func (t *test) wasLate() { t.took(time.Now().Add(-time.Minute), 0) }

// A failure on a machine that was late says nothing of the driver. A failure on a punctual
// machine does.
func TestRunOnALateMachineIsVoid(t *testing.T) {
	runs := 0
	Case{Name: "late twice", body: func(t *test) {
		if runs++; runs < 3 {
			t.wasLate()
			t.Fatalf("the lease is over")
		}
	}}.Run(t, nil)
	require.Equal(t, 3, runs)

	synctest.Test(t, func(t *testing.T) { // where no machine is late by itself
		for _, late := range []bool{false, true} {
			ts := &test{T: t}
			ts.run(func(t *test) {
				if late {
					t.took(time.Now().Add(-tooLate), -time.Millisecond)
				} else {
					t.took(time.Now(), 0)
				}
				require.Fail(t, "two holders")
				t.Errorf("is not reached")
			})
			require.Len(t, ts.failures, 1)
			require.Contains(t, ts.failures[0], "two holders")
			require.Equal(t, late, ts.late.Load())
		}
	})
}

// A driver that is wrong and slow fails. It is neither passed over nor tried for ever.
func TestDriverThatIsWrongAndSlowFails(t *testing.T) {
	runs := 0
	skipped, failed := Case{body: func(t *test) {
		runs++
		t.wasLate()
		t.Fatalf("the lease is over")
	}}.judge(t, nil, nil)
	require.Empty(t, skipped)
	require.Contains(t, failed, "the lease is over")
	require.Equal(t, tries, runs)
}

// No late machine explains a broken promise, so no second run may excuse it.
func TestBrokenPromiseIsNeverVoid(t *testing.T) {
	runs := 0
	_, failed := Case{body: func(t *test) {
		runs++
		t.wasLate()
		require.Fail(t, foul+"two are in the room")
	}}.judge(t, nil, nil)
	require.Contains(t, failed, "FOUL: two are in the room")
	require.Equal(t, 1, runs)
}

func TestCallThatTakesLongIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pace := range []float64{0, 1, 4} {
			for _, late := range []bool{false, true} {
				ts := &test{T: t, scale: scale{pace: pace}}
				_, end := ts.call()
				time.Sleep(ts.real(tooLate))
				if late {
					time.Sleep(time.Nanosecond)
				}
				end()
				require.Equal(t, late, ts.late.Load())
			}
		}
	})
}

// A machine that stands still between two calls makes none of them late.
func TestMachineThatStoodStillIsLate(t *testing.T) {
	for _, stood := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			done, jump := make(chan struct{}), atomic.Int64{}
			now := func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
			time.AfterFunc(time.Minute/2+1, func() { jump.Store(int64(stood)) })
			time.AfterFunc(time.Minute, func() { close(done) })
			require.Equal(t, stood, stalls(done, now))
		})
	}
}

// After three void runs a case has its other runs alone, and nobody else waits for ever.
func TestCaseThatOthersDisturbRunsAlone(t *testing.T) {
	var inside, ran atomic.Int64
	leaves := make(chan struct{})
	other := Case{body: func(*test) {
		inside.Add(1)
		defer inside.Add(-1)
		if ran.Add(1) == 1 {
			<-leaves // It is there as long as the runs are void.
		}
		time.Sleep(time.Millisecond)
	}}
	over := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				_, failed := other.judge(t, nil, nil)
				assert.Empty(t, failed)
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	require.Eventually(t, func() bool { return ran.Load() > 0 }, time.Minute, time.Millisecond)
	runs := 0
	_, failed := Case{body: func(t *test) {
		runs++
		if runs == beside {
			close(leaves)
		}
		if runs > beside {
			for range 20 {
				require.Zero(t, inside.Load(), foul+"another case runs")
				time.Sleep(time.Millisecond)
			}
		}
		if runs < tries {
			t.wasLate()
			t.Fatalf("the lease is over")
		}
	}}.judge(t, nil, nil)
	close(over)
	others.Wait()
	require.Empty(t, failed)
	require.Equal(t, tries, runs)
}

// slow is a driver for which each call takes so long.
type slow struct {
	driver.Driver
	calls *atomic.Int64
	takes *atomic.Int64
}

func (s slow) Acquire(context.Context, *driver.Request) (driver.Grant, error) {
	s.calls.Add(1)
	time.Sleep(time.Duration(s.takes.Load()))
	return driver.Grant{}, nil
}
func (s slow) Release(context.Context, driver.Lease) error { return nil }
func (s slow) Close() error                                { return nil }

// The leases of the suite are as much longer as the store is slower than it should be.
func TestTimesOfTheSuiteFollowTheStore(t *testing.T) {
	var calls, takes atomic.Int64
	open := func(*testing.T) driver.Driver { return slow{calls: &calls, takes: &takes} }
	pace := func(want, most float64) Case {
		return Case{body: func(t *test) {
			t.driver()
			require.GreaterOrEqual(t, t.pace, want)
			require.LessOrEqual(t, t.pace, most)
			require.Equal(t, time.Duration(float64(short)*max(1, t.pace)).Truncate(time.Millisecond), t.real(short))
			require.Equal(t, driver.MinTTL, t.real(driver.MinTTL))
			require.Less(t, t.real(driver.MinTTL-1), driver.MinTTL)
			require.Equal(t, driver.MaxTTL+1, t.real(driver.MaxTTL+1))
		}}
	}
	takes.Store(int64(4 * quick))
	t.Run("slow", func(t *testing.T) {
		t.Run("", func(t *testing.T) { pace(4, slowest).Run(t, open) })
		n := calls.Load()
		require.GreaterOrEqual(t, n, int64(measured))
		t.Run("", func(t *testing.T) { pace(4, slowest).Run(t, open) })
		require.Equal(t, n, calls.Load(), "it is measured once")
	})
	takes.Store(int64(2 * slowest * quick))
	t.Run("another", func(t *testing.T) {
		t.Run("", func(t *testing.T) { pace(slowest, slowest).Run(t, open) })
	})
	calls.Store(0)
	synctest.Test(t, func(t *testing.T) {
		_, failed := pace(0, 0).judge(t, open, nil)
		require.Empty(t, failed)
	})
	require.Zero(t, calls.Load(), "nothing is measured in virtual time")
}
