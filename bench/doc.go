// Package bench compares holdfast with the other ways for programs in Go to lock across
// processes, side by side on one machine.
//
// A [Contender] is one such way, and a [Work] is something that programs do with locks. A
// [Scene] is a work set up for one contender, which goes on in turns. Because the
// contenders take turns, disturbances of the machine meet all of them.
//
//	go test -bench . -benchtime 1s     the works, as benchmarks
//	go run ./report                    the works, as RESULTS.md with plots
//
// A client with its own connections plays a process; all clients run in one process of the
// operating system. So nothing is measured between their schedulers. But clients and Redis
// share the machine: a contender that needs less of it leaves more to itself.
package bench
