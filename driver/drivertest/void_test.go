package drivertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A failure on a machine that was late says nothing of the driver. A failure on a punctual
// machine does, and so does one that comes however often the case is run.
func TestRunOnALateMachineIsVoid(t *testing.T) {
	runs := 0
	Case{Name: "late twice", body: func(t *test) {
		if runs++; runs < 3 {
			t.took(time.Now().Add(-time.Second), time.Second/2)
			t.Fatalf("the lease is over")
		}
	}}.Run(t, nil)
	require.Equal(t, 3, runs)

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
}

func TestCallThatTakesLongIsLate(t *testing.T) {
	ts := &test{T: t}
	_, end := ts.call()
	time.Sleep(tooLate)
	end()
	require.True(t, ts.late.Load())
}
