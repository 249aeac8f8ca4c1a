package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// columns of works in which some contend for one lock.
var contended = []Figure{Throughput, Handovers, WaitP50, WaitP99, WaitMax, Jain, Commands, RedisCPU, Allocs}

// even are those where it makes no difference who gets how much.
var even = []Figure{Throughput, WaitP50, WaitP99, WaitMax, Commands, RedisCPU, Allocs}

// Uncontended is what most calls are in most programs.
var Uncontended = Work{
	Name:       "Uncontended",
	Title:      "Lock and unlock, uncontended",
	About:      "One client, one goroutine, a lock that nobody else wants.",
	Contenders: slices.Concat(All, []Contender{HoldfastLock, HoldfastDo, RawPipelined}),
	Columns:    even,
	Turns:      25,
	Time:       150 * time.Millisecond,
	Enter:      mutexes(1).enter,
}

// Linger is to lock again what one has just unlocked.
var Linger = Work{
	Name:       "Linger",
	Title:      "Lock again what was unlocked",
	About:      "One client, one goroutine, a lock that it keeps as long as nobody else wants it.",
	Contenders: []Contender{HoldfastLinger, InProcess},
	Columns:    even,
	Turns:      5,
	Time:       time.Second,
	// To time each wait would take twice as long as to lock and unlock.
	Enter: setting{processes: each(1), every: 64, seat: seatMutex, size: 1}.enter,
}

// Clients are works where clients, each with one goroutine, contend for one lock.
var Clients = []Work{
	clients(2, 0), clients(8, 0), clients(64, 0),
	clients(2, time.Millisecond), clients(8, time.Millisecond), clients(64, time.Millisecond),
}

// Sweep is how throughput goes with the number of clients, beside those above.
var Sweep = []Work{clients(1, 0), clients(4, 0), clients(16, 0), clients(32, 0)}

func clients(n int, hold time.Duration) Work {
	st := mutexes(each(n)...)
	st.hold = hold
	return Work{
		Name:  fmt.Sprintf("Clients/%d/hold=%v", n, hold),
		Title: fmt.Sprintf("%d clients on one lock, held for %v", n, hold),
		About: "Each client has connections of its own, as a process has, and one goroutine that locks again at once. " +
			"Waits that go on at the end of a turn are waited for and counted.",
		Contenders: slices.Concat(All, []Contender{HoldfastLock}),
		Columns:    contended,
		Turns:      7,
		Time:       500 * time.Millisecond,
		Enter:      st.enter,
	}
}

// OneClient is where a lock between processes competes with one inside.
var OneClient = Work{
	Name:       "OneClient/64",
	Title:      "64 goroutines of one client on one lock",
	About:      "All the goroutines of a process want the same lock.",
	Contenders: slices.Concat(All, []Contender{HoldfastLock, HoldfastDo, RawPipelined}),
	Columns:    contended,
	Turns:      15,
	Time:       150 * time.Millisecond,
	Enter:      mutexes(64).enter,
}

// Apart are works where goroutines of one client do not get into each other's way,
// except on the connection.
var Apart = []Work{apart(8), apart(64), apart(512)}

func apart(n int) Work {
	st := mutexes(n)
	st.apart = true
	return Work{
		Name:       fmt.Sprintf("Apart/%d", n),
		Title:      fmt.Sprintf("%d goroutines of one client on different locks", n),
		About:      "A busy process that locks one thing or another for each request that it serves.",
		Contenders: slices.Concat(All, []Contender{HoldfastLock, HoldfastDo, RawPipelined}),
		Columns:    even,
		Turns:      11,
		Time:       300 * time.Millisecond, // to begin takes 512 of them some 20 ms
		Enter:      st.enter,
	}
}

// Cluster are the same works on a Cluster of three masters.
var Cluster = []Work{onCluster(apart(8)), onCluster(apart(64)), onCluster(apart(512))}

func onCluster(w Work) Work {
	enter := w.Enter
	w.Name, w.Title = "Cluster/"+w.Name, w.Title+" of a Cluster"
	w.About = "As above, on three masters without replicas, which take time from each other on one machine."
	w.Contenders = []Contender{Holdfast, Raw, Redsync, Redislock, Rueidislock, HoldfastLock, RawPipelined}
	w.Enter = func(ctx context.Context, s *Stage, c Contender) (Scene, error) { return enter(ctx, s.OnCluster(), c) }
	return w
}

// Many is a fleet that is busy with many things, for each of which several contend.
var Many = Work{
	Name:       "Many/1000x10",
	Title:      "1,000 locks, each wanted by 10 clients",
	About:      "Each of 10 clients has 1,000 goroutines, one for each lock, which lock again at once.",
	Contenders: slices.Concat(All, []Contender{HoldfastLock}),
	Columns:    contended,
	Turns:      3,
	Time:       4 * time.Second,
	Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
		st := mutexes(evenly(10_000, 10)...)
		st.apart = true
		return st.gather(ctx, s, c)
	},
}
