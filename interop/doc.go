// Package interop has the tests that need other libraries, and nothing else. It is a
// module of its own, so that no program that uses holdfast gets them into its go.mod.
//
//   - setnx_test.go shares a mutex of driver/setnx with redsync, with bsm/redislock and
//     with the pattern in the documentation of Redis; peer_test.go has these.
//   - old_test.go looks at locks that redsync and redislock hold, as the guide for migration
//     does.
//   - redlock_test.go shares a mutex of driver/redlock with redsync, over three servers.
//   - redisotel_test.go has the spans of redisotel beside those of holdfast, with GuardHook
//     and NameHook before or after it.
package interop
