//go:build !unix

package redistest

// oneAtATime does nothing here.
func oneAtATime() (end func()) { return func() {} }
