// Package redistest has the servers and the faults that the tests of this module run
// against.
//
// [Each] runs one body over a real Redis, and over miniredis where there is none. [Bubble] runs it in virtual
// time. [Real] starts a Redis that the test may stop, kill or freeze, [RealWithClock] one
// whose wall clock it may step. A [Proxy] between client and server loses, delays and holds
// back single commands and replies.
//
// A package that uses redistest has this TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Five variables of the environment say what is run:
//
//   - HOLDFAST_LEGS: virtual for what runs in virtual time, real for what does not, all for
//     both and for what depends on the machine, too. Unset, both without that.
//   - HOLDFAST_REDIS_ADDR, host:port or the path of a unix socket: ordinary tests use that
//     server, and touch only keys under [Server.Prefix]. Without it they share one
//     redis-server from the PATH, started when first needed.
//   - HOLDFAST_REDIS_SERVER, a program: the server that tests start, such as valkey-server.
//     The default is redis-server from the PATH.
//   - HOLDFAST_REQUIRE_REDIS=1: a test that cannot run because redis-server or gcc is
//     missing fails instead of being skipped. Set it in CI.
//   - HOLDFAST_SOAK=1: tests that look for rare faults run at full length, see [Rounds]
//     and [Again], and those of [SoakOnly] run at all. .ci/soak sets it.
package redistest
