// Package bench compares holdfast with the other ways for programs in Go to lock
// across processes, side by side on one machine.
//
// A [Contender] is such a way, a [Work] is something that programs do with locks, and a
// [Scene] is a work set up for one contender, which goes on in turns. Because the
// contenders take turns, whatever else the machine does meets all of them.
//
//	go test -bench . -benchtime 1s     the works, as benchmarks
//	go run ./report                    the works, as RESULTS.md with plots
//
// A process is played by a client with connections of its own, all in one process of
// the operating system. So nothing is measured between their schedulers, but clients and
// Redis share the machine, and a contender that needs less of it leaves more to itself.
package bench
