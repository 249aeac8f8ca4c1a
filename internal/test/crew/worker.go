// Package crew has processes that do as a test tells them: other instances of this program, each in a
// role. They can be paused and killed, and none outlives the process that started it.
//
//	func init() { crew.Register("echo", func() {
//		for text := range crew.Orders[string]() {
//			crew.Report("heard " + text)
//		}
//	}) }
//
//	func TestMain(m *testing.M) { crew.Enter(); os.Exit(m.Run()) }
//
//	p := crew.Start(t, "echo")
//	p.Tell("hello")
//	require.Equal(t, "heard hello", crew.Hear[string](p))
//
// Orders and reports are JSON, in a line each, on standard input and output.
package crew

import (
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"sync"
)

// roleVar has the role of a process that is a worker.
const roleVar = "HOLDFAST_TEST_ROLE"

var (
	roles   = map[string]func(){}
	entered bool // tells Start that a new process of this program would find its way
)

// Register names what a process does in a role. Call it in an init function, or before [Enter]. When
// work returns, the process ends.
func Register(role string, work func()) {
	if _, dup := roles[role]; dup {
		panic("crew: two roles called " + role)
	}
	roles[role] = work
}

// Enter does not return if this process is a worker. A program calls it first in main, and a test in TestMain.
func Enter() {
	entered = true
	if role, ok := os.LookupEnv(roleVar); ok {
		roles[role]()
		os.Exit(0)
	}
}

var orders = json.NewDecoder(os.Stdin)

// Order waits for the next order to this process. ok is false when there will be none.
func Order[T any]() (order T, ok bool) {
	switch err := orders.Decode(&order); {
	case err == nil:
		return order, true
	case errors.Is(err, io.EOF):
		return order, false
	default:
		panic(err)
	}
}

// Orders are all orders to this process from now on, until there will be none.
func Orders[T any]() iter.Seq[T] {
	return func(yield func(T) bool) {
		for {
			if order, ok := Order[T](); !ok || !yield(order) {
				return
			}
		}
	}
}

var reporting sync.Mutex

// Report tells the test something. Goroutines may call it at the same time.
func Report(report any) {
	reporting.Lock()
	defer reporting.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		panic(err)
	}
}
