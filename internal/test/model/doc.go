// Package model is a search through everything that can happen to one lock. It has tests only.
//
//	go test -v ./internal/test/model
//
// Tests with a real server see the interleavings that happen to come up. The search sees all of
// a small world: some claims, the messages between them and a server, a clock, and a few faults.
// It begins where nothing has happened, tries every move that is possible, and goes on from each
// state that it has not seen before, nearest first. If a promise is broken, it prints the
// shortest way there, with the record of the lock before and after each step.
//
// # What is real, and what is not
//
// The scripts are real: those that package redisdriver sends. The server is a table with one key
// (server_test.go), as strict as Redis and with no command that the scripts do not use. Claims
// behave as the tokens of internal/token, internal/keepalive and the Go side of redisdriver do; that
// is written down once more, in world_test.go, and can be wrong.
//
// Lua is slow, and the search needs millions of states. But a script only turns one record into
// another. Its effect depends on the record, the request, the time and who listens, and there
// are far fewer of those than states: some ten thousand runs of Lua serve a million states
// (effect_test.go). For that, two records that no script can tell apart must be the same
// (record_test.go):
//
//   - All scripts run at one moment. Where the clock goes on, the times in the record go back.
//   - Of fences that are not ahead of the clock only their order counts, and which adjoin.
//   - Tokens, clients and texts are fixed. There is one numbering of places: when the lock gets
//     a new one, all places that anybody remembers become none.
//
// # What can happen
//
// Messages arrive in any order and at any time, also when the claim that they are for has given
// up, with a tombstone where the protocol demands one. One may be lost. One may come twice, but
// not an ask: nothing repeats it behind the claim's back. A claim asks, asks again, gives up,
// releases, gives up a part, renews, loses its trust, or crashes, whether Redis sees it or not.
// Its subscription breaks, and is mended. Somebody takes the lock by force. Time passes, and the
// server's clock is set back.
//
// # What must be true
//
// After every script: package record finds no fault with the lock. No more come to wait than may, and
// none is turned away if fewer wait, or if it waits itself. Fences increase in the order of grants. No
// claim overtakes one that waits, and none is left waiting for what nobody holds. The key does not end
// long after all that counts on it.
//
// In every state: claims that trust their leases hold no more than there is, and the lease of
// each is there.
//
// When no message is under way: no claim that is over holds the lock or waits for it. If nothing
// was lost, each that waits is known to the server, and has been told of a grant. And once the
// others release, or are dead for long enough, the heartbeats of those that wait serve them all;
// then nothing is left but a key that will end.
//
// # What it does not see
//
// Small worlds have two to four claims and few asks, and most searches end at a number of states
// and not of ideas; the test says how far they came. Time goes on by a third of a lease, so a
// grace or a margin that is too short by a little shows elsewhere. Owners, resizing,
// attaching, raised fences, notices for holders that are wanted, queues longer than one call
// looks at, a full memory, many locks in one call, and data that Redis loses are for other tests.
// So is what a claim does about errors, and when exactly a waiter looks at a lease that ends.
package model
