package driver_test

import (
	"context"
	"fmt"
	"testing"

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
	require.Equal(t, "[Busy Queued Granted Lost Wanted Status(0) Status(6)]", fmt.Sprint([]driver.Status{
		driver.Busy, driver.Queued, driver.Granted, driver.Lost, driver.Wanted, 0, driver.Wanted + 1}))
}
