package session

// Copy returns the session as a copy of the process has it.
func (s *Session) Copy() *Session {
	c := New(s.Driver)
	c.id = s.id
	c.count.Store(s.count.Load())
	return c
}
