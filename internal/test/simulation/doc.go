// Package simulation tests the library as a whole, in virtual time and over networks that
// fail. A few processes, each with a client of its own, share one store in a bubble of
// testing/synctest. The store is miniredis behind connections in memory, or memdriver
// behind a driver that fails in the same ways.
//
// The events in a bubble are a plan: processes with their options, goroutines with the calls
// that they make, and faults of the network. A test draws a plan with package rapid before
// the bubble begins, plays it, and only then looks at the result. rapid makes a plan that
// fails smaller, and prints it.
//
//   - TestEveryPlanIsPlayedAsPromised plays random plans.
//   - TestEveryFrameMayFail plays short scenes once for each frame on the wire and each thing
//     that can happen to it: it is lost, it is late, its connection is reset before or after
//     it, its process is cut off when it arrives, a caller gives up, a process closes.
//
// A referee, which knows nothing of the store, writes down who believes to hold what, and
// when. It then says whether all was as promised: who held at the same time, in which order
// the fences came, who was served first, who waited for a lock that was free. Everybody must
// be done some time after the last fault. One minute later there must be no goroutine and no
// key.
//
// By default each test looks for 10 s, and fails some of the frames. With HOLDFAST_SOAK=1
// these are 2 minutes, and all frames. For longer:
//
//	go test ./internal/test/simulation -run Plan -simulate 3h -timeout 4h
//
// A plan that fails is played again with the -rapid.failfile or the -rapid.seed that the
// failure names. The times of frames come from the plan. Goroutines of one moment run in any
// order, though. So a replay, like the search for a smaller plan, plays each plan up to 16
// times with other times of frames.
package simulation
