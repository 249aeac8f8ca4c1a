package redistest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// daemon is a redis-server process that can be started more than once, at the
// same address and in the same directory.
type daemon struct {
	program string
	addr    string
	dir     string
	args    []string
	env     []string

	mu     sync.Mutex // held while the process starts or ends
	cmd    *exec.Cmd
	exited chan struct{}
}

// program is the server that tests start.
func program() string { return cmp.Or(os.Getenv("HOLDFAST_REDIS_SERVER"), "redis-server") }

// newDaemon starts a server on a free port of the loopback interface. args
// come after those that it sets itself, so they win; so do env.
func newDaemon(program string, args, env []string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "holdfast-redis-")
	if err != nil {
		return nil, err
	}
	d := &daemon{program: program, dir: dir, args: args, env: env}
	for range 10 {
		d.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(randomPort()))
		if err = d.start(); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return d, nil
}

// randomPort returns a port that no other test takes, of whatever package, until this process
// ends. A server that is stopped, or a proxy that refuses, leaves its port alone for a while,
// and needs the same one afterwards.
//
// It stays below the ports that the kernel gives to connecting sockets (32768 and up on
// Linux), which could take the place meanwhile, too. So does the port 10000 above, which a
// node of a Cluster needs.
func randomPort() int {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-ports-%d", os.Getuid()))
	_ = os.Mkdir(dir, 0o700) // it may be there
	for {
		port := 10000 + rand.IntN(12000)
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return port // it cannot be noted: the chance of a clash is small
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			portsMu.Lock()
			ports = append(ports, f) // the lock lasts as long as the file is open
			portsMu.Unlock()
			return port
		}
		_ = f.Close()
	}
}

var (
	portsMu sync.Mutex
	ports   []*os.File
)

// start returns when the server is ready, or has said why it is not.
func (d *daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, port, _ := net.SplitHostPort(d.addr)
	logName := filepath.Join(d.dir, "redis.log")
	logFile, err := os.Create(logName)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()

	var config []string
	if slices.Contains(d.args, "--sentinel") { // which keeps in a file what it knows
		config = []string{filepath.Join(d.dir, "sentinel.conf")}
		if err := os.WriteFile(config[0], nil, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.Command(d.program, slices.Concat(config, []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", d.dir,
		"--save", "", "--appendonly", "no", "--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0",
	}, d.args)...)
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	d.cmd, d.exited = cmd, make(chan struct{})
	go waitFor(cmd, d.exited)
	return d.awaitReady(logName)
}

func waitFor(cmd *exec.Cmd, exited chan<- struct{}) {
	_ = cmd.Wait() // it is always we who end it, or its log says why it ended
	close(exited)
}

// awaitReady reads the log rather than asking the port: another process may have
// the port, and would answer.
func (d *daemon) awaitReady(logName string) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		exited := isClosed(d.exited)
		text, err := os.ReadFile(logName)
		switch {
		case err != nil:
			return err
		case exited && bytes.Contains(text, []byte("Address already in use")):
			return fmt.Errorf("redis-server on %s: %w", d.addr, syscall.EADDRINUSE)
		case exited:
			return fmt.Errorf("redis-server did not start:\n%s", text)
		case bytes.Contains(text, []byte("Ready to accept connections")), bytes.Contains(text, []byte("Sentinel ID is")):
			return nil
		case time.Now().After(deadline):
			d.endLocked(syscall.SIGKILL)
			return fmt.Errorf("redis-server is not ready after 20s:\n%s", text)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// runs reports whether the process runs.
func (d *daemon) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd != nil && !isClosed(d.exited)
}

// signal sends sig to the process if it runs.
func (d *daemon) signal(sig os.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil || isClosed(d.exited) {
		return os.ErrProcessDone
	}
	return d.cmd.Process.Signal(sig)
}

// end sends sig, SIGTERM or SIGKILL, and returns when the process is gone.
func (d *daemon) end(sig os.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endLocked(sig)
}

func (d *daemon) endLocked(sig os.Signal) {
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		_ = d.cmd.Process.Kill()
	}
	// A frozen process would keep SIGTERM pending for ever.
	_ = d.cmd.Process.Signal(resume)
	<-d.exited
	d.cmd = nil
}

// remove ends the process for good and deletes its files.
func (d *daemon) remove() {
	d.end(syscall.SIGKILL)
	_ = os.RemoveAll(d.dir)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
