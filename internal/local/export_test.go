package local

// Bounds of turns.
const (
	MaxFences  = maxFences
	MaxUnasked = maxUnasked
)

// InUse returns how many locks are in use.
func (r *Registry) InUse() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.locks {
		for _, l := range of {
			if l.refs.Load() > 0 {
				n++
			}
		}
	}
	return n
}

// Waiting returns how many goroutines wait for a lock in its process.
func (r *Registry) Waiting(id ID) (n int) {
	l := r.inUse(id)
	if l == nil {
		return 0
	}
	defer l.unref()
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.writers.waiting.first; w != nil; w = w.next {
		n++
	}
	return n
}

// Overtaken has Close come to the hold while f runs, and reports whether the lease was left to it.
func (h *Hold) Overtaken(f func()) (left bool) {
	r := h.grant.lock.r
	r.Session.Close(func() {
		f()
		left = h.grant.giveBack(errClosed) != nil
	})
	r.Keeper.Close()
	r.Session.End()
	return left
}
