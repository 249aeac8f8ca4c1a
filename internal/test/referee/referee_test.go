package referee_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/referee"
)

const all = 100

// hold was asked for and held at these moments.
func hold(weight, fence int64, asked, from, to time.Duration) *referee.Hold {
	return &referee.Hold{Weight: weight, Fence: fence, Asked: asked, From: from, To: to}
}

func grouped(h *referee.Hold) *referee.Hold { h.Group = "family"; return h }

func shared(h *referee.Hold) *referee.Hold { h.Shared = true; return h }

func TestEachKindOfBreachIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		holds []*referee.Hold
		want  []referee.Rule
	}{
		"one after the other":   {[]*referee.Hold{hold(all, 1, 0, 10, 20), hold(all, 2, 0, 25, 40)}, nil},
		"when the other leaves": {[]*referee.Hold{hold(all, 1, 0, 10, 20), hold(all, 2, 0, 20, 40)}, nil},
		"two writers":           {[]*referee.Hold{hold(all, 1, 0, 10, 20), hold(all, 2, 0, 19, 40)}, []referee.Rule{referee.Room}},
		"two readers":           {[]*referee.Hold{hold(1, 1, 0, 10, 20), hold(1, 2, 0, 15, 40)}, nil},
		"reader and writer":     {[]*referee.Hold{hold(1, 1, 0, 10, 20), hold(all, 2, 0, 15, 40)}, []referee.Rule{referee.Room}},
		"writer and reader":     {[]*referee.Hold{hold(all, 1, 0, 10, 20), hold(1, 2, 0, 15, 40)}, []referee.Rule{referee.Room}},
		"permits that fit":      {[]*referee.Hold{hold(70, 1, 0, 10, 20), hold(30, 2, 0, 15, 40)}, nil},
		"too many permits":      {[]*referee.Hold{hold(70, 1, 0, 10, 20), hold(31, 2, 0, 15, 40)}, []referee.Rule{referee.Room}},
		"a third": {[]*referee.Hold{hold(50, 1, 0, 10, 90), hold(50, 2, 0, 15, 40), hold(50, 3, 0, 20, 30)},
			[]referee.Rule{referee.Room}},
		"a reader that stays": {[]*referee.Hold{hold(1, 1, 0, 10, 90), hold(1, 2, 0, 15, 20), hold(all, 3, 0, 30, 40)},
			[]referee.Rule{referee.Room}},
		"one that never believed":         {[]*referee.Hold{hold(all, 1, 0, 10, 20), hold(all, 2, 0, 15, 0)}, nil},
		"a group":                         {[]*referee.Hold{grouped(hold(all, 1, 0, 10, 20)), grouped(hold(all, 1, 12, 15, 40))}, nil},
		"a group and another":             {[]*referee.Hold{grouped(hold(all, 1, 0, 10, 20)), hold(all, 2, 0, 15, 40)}, []referee.Rule{referee.Room}},
		"smaller, asked for before":       {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, 6, 9, 20, 30)}, nil},
		"smaller, asked for afterwards":   {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, 6, 11, 20, 30)}, []referee.Rule{referee.Order}},
		"smaller, of one that never was":  {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, 6, 11, 20, 0)}, []referee.Rule{referee.Order}},
		"smaller, and larger between":     {[]*referee.Hold{hold(all, 7, 0, 1, 2), hold(all, 9, 3, 4, 5), hold(all, 8, 6, 7, 8)}, []referee.Rule{referee.Order}},
		"given twice":                     {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, 7, 9, 20, 30)}, []referee.Rule{referee.Different}},
		"given twice, one after another":  {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, 7, 11, 20, 30)}, []referee.Rule{referee.Different, referee.Order}},
		"unseen":                          {[]*referee.Hold{hold(all, 7, 0, 10, 20), hold(all, referee.Unseen, 11, 20, 30)}, nil},
		"readers that have no order":      {[]*referee.Hold{shared(hold(1, 7, 0, 10, 20)), shared(hold(1, 6, 11, 20, 30))}, nil},
		"a writer before a reader":        {[]*referee.Hold{hold(all, 7, 0, 10, 20), shared(hold(1, 6, 11, 20, 30))}, []referee.Rule{referee.Order}},
		"a reader before a writer":        {[]*referee.Hold{shared(hold(1, 7, 0, 10, 20)), hold(all, 6, 11, 20, 30)}, []referee.Rule{referee.Order}},
		"a group and one that has passed": {[]*referee.Hold{grouped(hold(all, 7, 0, 10, 20)), hold(all, 7, 25, 30, 40)}, []referee.Rule{referee.Different, referee.Order}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []referee.Rule
			for _, b := range (&referee.Referee{Limit: all}).Judge(c.holds) {
				got = append(got, b.Rule)
				require.Same(t, c.holds[len(c.holds)-1], b.Hold)
				require.NotEmpty(t, b.Others)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestLimitIsThatOfTheMoment(t *testing.T) {
	holds := []*referee.Hold{hold(2, 1, 0, 10, 20), hold(2, 2, 0, 15, 40), hold(2, 3, 0, 35, 50)}
	r := referee.Referee{LimitOf: func(inside []*referee.Hold) int64 {
		if inside[len(inside)-1].From < 30 {
			return 4
		}
		return 3
	}}
	require.Equal(t, []referee.Breach{{Rule: referee.Room, Hold: holds[2], Others: holds[1:2]}}, r.Judge(holds))
	require.EqualValues(t, 1, r.Fouls())
}

func TestRefereeSeesWhileItHappens(t *testing.T) {
	r := &referee.Referee{Limit: 3}
	r.EnterWith(3, 5)
	r.Leave(3)
	r.EnterWith(1, 8)
	r.EnterWith(1, 7) // Two that are inside together have no order.
	r.Leave(1)
	r.Leave(1)
	r.EnterWith(3, 9)
	r.Leave(3)
	r.Enter(3)
	r.Leave(3)
	r.RequireFair(t, 5)
	require.EqualValues(t, 3, r.Peak())

	r.EnterWith(3, 6)
	require.EqualValues(t, 1, r.Fouls(), "its fence is smaller")
	r.Enter(1)
	require.EqualValues(t, 2, r.Fouls(), "there is no room")
	r.Leave(3)
	r.EnterWith(1, 5)
	require.EqualValues(t, 4, r.Fouls(), "it is the fence of another, and smaller than that of one who had all")
}
