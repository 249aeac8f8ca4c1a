package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// slot is one of the locks that workers want. Its name changes every rotation operations,
// so that a history of one name stays short.
type slot struct {
	kind  driver.Kind
	how   way
	limit int64 // of a semaphore
}

// way is how workers use a slot.
type way string

const (
	plain  way = ""
	fifo   way = "fifo"   // with WithStrictFIFO
	linger way = "linger" // with WithLinger
	long   way = "long"   // held for up to some TTLs; nobody waits for it

	robbed     way = "robbed" // stolen now and then
	robbedFifo way = robbed + fifo

	yielding way = "yielding" // held until another waits
	ticking  way = "ticking"  // with WithMinHold; nobody waits for it
	crowded  way = "crowded"  // with WithMaxWaiters
	whole    way = "whole"    // taken together with others, by All
)

// rarity is how much rarer than others a slot is used. A long hold keeps an actor for as long as some
// hundred others do.
func (s slot) rarity() int {
	switch s.how {
	case long:
		return 100
	case ticking:
		return 10
	case whole:
		return 2
	}
	return 1
}

// onlyTried says that nobody waits for the lock.
func (s slot) onlyTried() bool { return s.how == long || s.how == ticking }

func (s slot) fifo() bool   { return strings.HasSuffix(string(s.how), string(fifo)) }
func (s slot) robbed() bool { return strings.HasPrefix(string(s.how), string(robbed)) }

const rotation = 2000

// permits is the limit of all semaphores.
const permits = 4

// longMutex has WithMaxHold.
var longMutex = slot{kind: driver.Mutex, how: long}

var slots = []slot{
	{kind: driver.Mutex},
	{kind: driver.Mutex, how: fifo},
	{kind: driver.Mutex, how: linger},
	{kind: driver.RWMutex},
	{kind: driver.RWMutex, how: fifo},
	longMutex,
	{kind: driver.RWMutex, how: long},
	{kind: driver.Mutex, how: robbed},
	{kind: driver.Mutex, how: robbedFifo},
	{kind: driver.RWMutex, how: robbedFifo},
	{kind: driver.Mutex, how: yielding},
	{kind: driver.Mutex, how: ticking},
	{kind: driver.Mutex, how: crowded},
	{kind: driver.Mutex, how: whole},
	{kind: driver.RWMutex, how: whole},
	{kind: driver.Semaphore, how: whole, limit: permits},
	{kind: driver.Semaphore, limit: permits},
	{kind: driver.Semaphore, how: fifo, limit: permits},
}

// ofRedlock are the slots of a store that has no semaphores and no steals.
func ofRedlock(s slot) bool {
	return s.kind != driver.Semaphore && slices.Contains([]way{plain, fifo, linger, long}, s.how)
}

func anySlot(slot) bool { return true }

func slotsOf(keeps func(slot) bool) (all []int) {
	for i, s := range slots {
		if keeps(s) {
			all = append(all, i)
		}
	}
	return all
}

// names are those that the slots have now: a board with the number of uses of each, which all
// processes count.
type names struct{ uses board }

func openNames(file string) (names, error) {
	uses, err := openBoard(file, len(slots))
	return names{uses}, err
}

// take returns the name of slot i for one use.
func (n names) take(i int) string { return nameOf(i, n.uses[i].Add(1)-1) }

// begun waits until one of so many actors wants a second lock, or set of locks. Then the store has
// granted something. A busy machine takes seconds to start the processes, and the servers of redlock
// may not vote at first. The load of that time says nothing.
func (n names) begun(actors int) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		uses := int64(0)
		for i := range n.uses {
			uses += n.uses[i].Load()
		}
		if uses > int64(actors*len(wholes)) {
			return
		}
	}
}

// current returns a lock that is in use.
func (n names) current(i int) (driver.Kind, string) {
	return slots[i].kind, nameOf(i, n.uses[i].Load())
}

// rotate gives all slots new names.
func (n names) rotate() {
	for i := range n.uses {
		for {
			used := n.uses[i].Load()
			if n.uses[i].CompareAndSwap(used, (used/rotation+1)*rotation) {
				break
			}
		}
	}
}

func nameOf(i int, uses int64) string { return nameBegin(slots[i]) + fmt.Sprint(uses/rotation) }

func nameBegin(s slot) string { return fmt.Sprintf("%s%s-", s.kind, s.how) }
