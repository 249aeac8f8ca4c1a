//go:build unix

// Command fencing shows what a fence is for. A worker reads a balance under a lock, is paused
// for longer than its lease lasts, and then writes what it has computed from the old balance;
// meanwhile another worker had the lock and has changed it. Each worker is a process of its own.
// The balance is in SQLite, behind a server.
//
//	go run .                # the late write is refused
//	go run . -guard=false   # the late write lands, and the change of the other is lost
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	log.SetFlags(0)
	guard := flag.Bool("guard", true, "check fences")
	flag.Parse()
	if args := flag.Args(); len(args) == 5 && args[0] == "work" {
		if err := work(context.Background(), args[1], args[2], args[3], args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := show(context.Background(), os.Stdout, *guard); err != nil {
		log.Fatal(err)
	}
}

// show lets two workers meet.
func show(ctx context.Context, out io.Writer, guard bool) error {
	ctx, stop := context.WithCancel(ctx) // kills workers that still run
	defer stop()
	redis, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer redis.Close()
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bank, err := openBank(ctx, filepath.Join(dir, "bank.db"), guard)
	if err != nil {
		return err
	}
	defer bank.close()
	fmt.Fprintln(out, "the balance is 100")

	slow, err := start(ctx, out, "slow", "10", redis.Addr(), bank.url)
	if err != nil {
		return err
	}
	slow.until("sends")
	fmt.Fprintln(out, "slow is paused, before the first byte has left")
	if err := slow.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}

	fast, err := start(ctx, out, "fast", "50", redis.Addr(), bank.url)
	if err != nil {
		return err
	}
	fast.until("sends")
	fast.proceed()
	fast.until("")

	fmt.Fprintln(out, "slow goes on")
	slow.proceed()
	if err := slow.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	slow.until("")
	balance, err := bank.balance(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the balance is", balance)
	return nil
}

// process is a worker.
type process struct {
	cmd   *exec.Cmd
	stdin io.Writer
	lines *bufio.Scanner
	out   io.Writer
}

func start(ctx context.Context, out io.Writer, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"work"}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, stdin, bufio.NewScanner(stdout), out}, cmd.Start()
}

// until passes on what the worker says, up to a line with a word, or else to its end.
func (p *process) until(word string) {
	for p.lines.Scan() {
		fmt.Fprintln(p.out, p.lines.Text())
		if word != "" && strings.Contains(p.lines.Text(), word) {
			return
		}
	}
	_ = p.cmd.Wait() // it has said what was wrong
}

// proceed lets the worker send.
func (p *process) proceed() { _, _ = fmt.Fprintln(p.stdin) }
