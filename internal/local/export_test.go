package local

// Waiting returns how many goroutines wait for a lock in its process.
func (r *Registry) Waiting(id ID) (n int) {
	l := r.inUse(id)
	if l == nil {
		return 0
	}
	defer l.Unref()
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.waiting.first; w != nil; w = w.next {
		n++
	}
	return n
}
