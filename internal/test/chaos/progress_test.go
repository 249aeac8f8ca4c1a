package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

func TestWaitsMustEndInTheCalm(t *testing.T) {
	const heal, patience = 1000, 4 * time.Second
	const late = heal + int64(patience) + 10
	end := heal + 2*int64(patience)
	storms := []storm{{heal: heal, end: end}}
	wait := func(invoked, returned int64) *op { return &op{incarnation: 3, invoked: invoked, returned: returned} }
	other := func(mode string, at ...int64) *op {
		o := hold(driver.Mutex, 1, 1, at...)
		o.lock, o.mode = "", mode
		return o
	}
	for name, c := range map[string]struct {
		op        *op
		killed    map[int]int64
		others    []*op
		want      int
		unordered int // the same of a store without an order
	}{
		"ended in time":                 {op: wait(500, heal+10)},
		"ended late":                    {op: wait(500, late), want: 1, unordered: 1},
		"never ended":                   {op: wait(500, 0), want: 1, unordered: 1},
		"began in the calm, ended late": {op: wait(heal+5, late+5), want: 1, unordered: 1},
		"never ended, killed":           {op: wait(500, 0), killed: map[int]int64{3: 600}},
		"began too late to tell":        {op: wait(end-1, 0)},
		"behind a long hold":            {op: wait(500, late), others: []*op{other("wait", 400, 500, late-5, late)}, unordered: 1},
		"behind one that is granted":    {op: wait(500, late), others: []*op{other("wait", 400, 3000, 3001, 3002)}, unordered: 1},
		"behind a hold of long ago":     {op: wait(500, late), others: []*op{other("wait", 400, 900, heal+2, 1100)}, want: 1, unordered: 1},
		"passed in the end":             {op: wait(500, late), others: []*op{other("wait", heal+1, late-900, late-800, late)}, unordered: 1},
		"passed for long":               {op: wait(500, late+900), others: []*op{other("wait", heal+1, heal+9, late+700, late)}, want: 1, unordered: 1},
		"passed by thieves alone":       {op: wait(500, late+900), others: []*op{other(stealing, heal+1, heal+9, late+700, late)}, unordered: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for ordered, want := range map[bool]int{true: c.want, false: c.unordered} {
				var f findings
				f.judgeProgress(append(c.others, c.op), ordered, storms, patience, c.killed)
				require.Equal(t, want, f.stuck, "ordered: %v", ordered)
			}
		})
	}
}

func TestStormLastsUntilNoProcessIsHeldUp(t *testing.T) {
	storms := []storm{{heal: 100, end: 200}, {heal: 300, end: 400}}
	troubles := []record{{at: 150, class: suspended}, {at: 120, class: suspended}, {at: 201, class: suspended}, {at: 160, class: late}}
	require.Equal(t, []storm{{heal: 150, end: 200}, {heal: 300, end: 400}}, awake(storms, troubles))
	require.EqualValues(t, 100, storms[0].heal)
}
