package keepalive

import "time"

// Planned returns when the keeper looks after its leases next.
func (k *Keeper) Planned() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.planned
}
