//go:build race

package sqltest

// The race detector slows SQLite down, which is C that was translated to Go, and there is
// nothing to detect where one goroutine plays a schedule.
func init() { defaultSchedules /= 20 }
