// Instructions counts what redis-server executes for cycles of locks, under valgrind. Unlike times,
// the figures are the same on a busy machine.
//
//	go run ./instructions             # all works
//	go run ./instructions -run reader # those whose name matches
//
// A figure is the difference of two runs, so it leaves out the start of the server and the first
// loading of scripts. It leaves out what the kernel does. To count for another commit, copy
// this directory, but for peers.go, into the bench of that commit.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	run := flag.String("run", "", "only works whose name matches this `regexp`")
	cycles := flag.Int("cycles", 300, "in the shorter of two runs")
	keep := flag.String("keep", "", "`directory` for what callgrind_annotate reads")
	server := flag.String("server", "redis-server", "`program`")
	flag.Parse()
	wanted, err := regexp.Compile(*run)
	if err != nil {
		fatal(err)
	}
	for _, w := range works {
		if !wanted.MatchString(w.name) {
			continue
		}
		few, err := count(*server, w, *cycles, "")
		if err != nil {
			fatal(err)
		}
		many, err := count(*server, w, 3*(*cycles), *keep)
		if err != nil {
			fatal(err)
		}
		fmt.Printf("%-42s %8d\n", w.name, (many-few)/(2*(*cycles)))
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "instructions:", err)
	os.Exit(1)
}

// work is what is counted. open prepares it on the server at addr and returns a cycle of it.
type work struct {
	name string
	open func(ctx context.Context, addr string) (cycle func() error, err error)
}

// count returns the instructions of a server that lives for so many cycles.
func count(server string, w work, cycles int, keep string) (int, error) {
	dir, err := os.MkdirTemp("", "holdfast-instructions-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket, out := filepath.Join(dir, "socket"), filepath.Join(dir, "callgrind.out")
	if keep != "" {
		out = filepath.Join(keep, "callgrind.out."+regexp.MustCompile(`\W+`).ReplaceAllString(w.name, "-"))
	}
	// Redis looks after itself hz times a second, which is no part of a cycle.
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+out, server,
		"--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir, "--hz", "1")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	played := play(socket, w, cycles)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmp.Or(played, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("%s: %w", w.name, err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return 0, err
	}
	total := regexp.MustCompile(`(?m)^(?:summary|totals): (\d+)`).FindSubmatch(text)
	if total == nil {
		return 0, fmt.Errorf("%s: callgrind has counted nothing", w.name)
	}
	return strconv.Atoi(string(total[1]))
}

// play goes through cycles at a server that is about to be there.
func play(socket string, w work, cycles int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, err := os.Stat(socket); err != nil && ctx.Err() == nil; _, err = os.Stat(socket) {
		time.Sleep(50 * time.Millisecond)
	}
	return w.play(ctx, socket, cycles)
}

func (w work) play(ctx context.Context, addr string, cycles int) error {
	cycle, err := w.open(ctx, addr)
	for i := 0; i < cycles && err == nil; i++ {
		err = cycle()
	}
	return err
}

func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute}) // valgrind is slow
}
