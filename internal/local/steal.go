package local

import "github.com/holdfast-go/holdfast/internal/token"

// endRobbed ends the leases of this process that the store has ended for a thief, whose grant has
// that fence. They would hear of it anyway, but perhaps only when they are renewed, and the thief
// should not meet them here.
func (l *Lock) endRobbed(thief *Grant, fence int64) {
	for _, owner := range l.r.Keeper.Owners() {
		g := owner.(*Grant)
		if g == thief || g.lock.id.Kind != l.id.Kind || g.lock.id.Name != l.id.Name {
			continue
		}
		if h := g.Oldest(); h != nil && h.fence < fence { // else it came later
			g.Lost(&token.Stolen{By: l.holder(thief.opts)})
		}
	}
}
