package driver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

type plain struct{ driver.Driver }

type inspecting struct{ driver.Driver }

func (inspecting) Inspect(context.Context, driver.Kind, string) (driver.Info, error) {
	return driver.Info{Name: "inner"}, nil
}

type wrapper struct{ driver.Driver }

func (w wrapper) Unwrap() driver.Driver { return w.Driver }

func TestAsFindsWhatAWrapperDoesNotHide(t *testing.T) {
	for name, c := range map[string]struct {
		d     driver.Driver
		found bool
	}{
		"itself":          {inspecting{}, true},
		"wrapped":         {wrapper{inspecting{}}, true},
		"wrapped twice":   {wrapper{wrapper{inspecting{}}}, true},
		"missing":         {plain{}, false},
		"wrapped missing": {wrapper{plain{}}, false},
		"hidden":          {plain{inspecting{}}, false},
		"nil":             {nil, false},
		"wrapped nil":     {wrapper{nil}, false},
	} {
		t.Run(name, func(t *testing.T) {
			i, ok := driver.As[driver.Inspector](c.d)
			require.Equal(t, c.found, ok)
			if ok {
				info, err := i.Inspect(t.Context(), driver.Mutex, "x")
				require.NoError(t, err)
				require.Equal(t, "inner", info.Name)
			}
		})
	}
}

func TestAsPrefersTheOutermost(t *testing.T) {
	d, ok := driver.As[driver.Wrapper](wrapper{wrapper{plain{}}})
	require.True(t, ok)
	require.Equal(t, wrapper{plain{}}, d.Unwrap())
}

func TestStatusIsPrintedByItsName(t *testing.T) {
	require.Equal(t, "[Busy Queued Granted Lost Wanted Full Status(0) Status(7)]", fmt.Sprint([]driver.Status{
		driver.Busy, driver.Queued, driver.Granted, driver.Lost, driver.Wanted, driver.Full, 0, driver.Full + 1}))
}

// A program that serves it to a web page counts on these words.
func TestInfoHasAFormForJSON(t *testing.T) {
	since := time.Date(2026, 11, 22, 15, 30, 0, 0, time.UTC)
	text, err := json.Marshal(driver.Info{
		Name:    "nightly",
		Holders: []driver.Holder{{Holder: "web-1:4242", Weight: 2, Owner: "o", Since: since, Fence: 7, LastFence: 8, TimeLeft: 9 * time.Second}},
		Queue:   []driver.Waiter{{Holder: "web-2:77", Shared: true}},
		Limit:   3,
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"nightly","holders":[{"holder":"web-1:4242","permits":2,"owner":"o","since":"2026-11-22T15:30:00Z",
		"fence":7,"last_fence":8,"left_ns":9000000000}],"queue":[{"holder":"web-2:77","shared":true}],"limit":3}`, string(text))
}
