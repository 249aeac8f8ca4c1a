// Command deadlock has two processes take the same two locks in different orders. Both would
// wait for ever. The one that began to wait last is told who waits for whom, gives back what it
// has, and tries again; the other one goes on.
//
//	go run .                                      # on a Redis within the program
//	go run . -redis localhost:6379 -pause 10s     # time to look: holdfast ls --watch
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
)

var (
	server = flag.String("redis", "", "address of a Redis")
	pause  = flag.Duration("pause", time.Second, "for how long a wait is not looked at")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	err := error(nil)
	if flag.NArg() == 2 {
		err = pay(context.Background(), os.Stdout, flag.Arg(0), flag.Arg(1))
	} else {
		err = show(context.Background(), os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// show lets two processes meet.
func show(ctx context.Context, out io.Writer) error {
	addr := *server
	if addr == "" {
		redis, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer redis.Close()
		addr = redis.Addr()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var both [2]*exec.Cmd
	for i, names := range [][]string{{"alice", "bob"}, {"bob", "alice"}} {
		p := exec.CommandContext(ctx, self, append([]string{"-redis", addr, "-pause", pause.String()}, names...)...)
		p.Stdout, p.Stderr = out, os.Stderr
		if err := p.Start(); err != nil {
			return err
		}
		both[i] = p
	}
	return errors.Join(both[0].Wait(), both[1].Wait())
}

// pay locks two accounts, again if that ends in a circle.
func pay(ctx context.Context, out io.Writer, from, to string) error {
	me := from + " pays " + to
	rdb := redis.NewClient(&redis.Options{Addr: *server})
	defer rdb.Close()
	locks := holdfast.New(rdb, holdfast.WithHolder(me))
	defer locks.Close()
	quiet := slog.New(slog.DiscardHandler) // it says here itself what the log would say
	locks.AddHook(deadlock.New(locks, deadlock.WithPause(*pause), deadlock.WithLogger(quiet)))

	meet := true
	for {
		err := locks.Mutex(from).Do(ctx, func(ctx context.Context) error {
			fmt.Fprintf(out, "%s: has %s, wants %s\n", me, from, to)
			for ; meet; time.Sleep(time.Millisecond) { // the first time, so that there is a circle
				other, err := locks.Mutex(to).Inspect(ctx)
				if err != nil {
					return err
				}
				meet = len(other.Holders) == 0
			}
			return locks.Mutex(to).Do(ctx, func(context.Context) error {
				fmt.Fprintf(out, "%s: done\n", me)
				return nil
			})
		})
		if !errors.Is(err, holdfast.ErrDeadlock) {
			return err
		}
		fmt.Fprintf(out, "%s: %v\n", me, err)
	}
}
