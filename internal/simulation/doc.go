// Package simulation is the tests that run whole fleets of clients in virtual time, over a
// network that fails.
package simulation
