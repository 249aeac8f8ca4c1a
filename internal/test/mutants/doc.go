// Mutants puts known bugs into holdfast, one after the other, and shows that a test finds each.
// A bug that its test does not find is a hole in the tests.
//
//	go run ./internal/test/mutants              # all of them
//	go run ./internal/test/mutants -run redlock # those whose name matches
//	go run ./internal/test/mutants -list        # what there is
//
// There is a bug for each promise of package holdfast, each rule of package redisdriver, each driver,
// and each defect that was fixed with a test of its own. Nothing in the work tree changes, because the go
// command reads the changed file from an overlay (go help build). First all tests pass without a bug. The
// program ends with 1 if that is not so, or if a bug is not found, as where its test is skipped, or cannot be put in.
//
// The bugs are in testdata, a file for each area, with an empty line between two:
//
//	pushed-grant-renewed-late (rule 2): A pushed grant that has used up much of its TTL is renewed a third of a TTL later.
//	in internal/keepalive/keepalive.go Keeper.renewal
//	- return t.sent.Sub(start) +
//	+ return time.Since(start) +
//	found by internal/keepalive TestGrantThatUsedUpMuchTimeIsRenewedAtOnce
//
// The first line has the name, the promises and rules that the bug breaks, if any, and what goes wrong, in a
// sentence. Lines that begin with # are comments.
//
// The second line has the file and the symbol: a function, type, variable or constant of Go, such as name or Type.Method, or
// a function of Lua. Without a symbol the whole file counts, as in a script. If the file has no such symbol any more, and
// exactly one other file of its folder has, that one is meant.
//
// The text after the minus stands within the symbol once. What is after the plus replaces it. Blanks, tabs and ends
// of lines do not matter in the former. Either may have several lines, and the latter none.
//
// The last line has a package and its test, with slashes before the names of subtests. The test runs as in the gate, or
// as in the soak if the line begins with "found in the soak by".
package main
