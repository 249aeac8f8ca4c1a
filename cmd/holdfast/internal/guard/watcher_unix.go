//go:build unix

package guard

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// WatchVerb is the first word of the command line of a watcher.
const WatchVerb = "__watch"

// watcher is a process that ends the command, and all of its group, if we are killed: nobody
// would renew the lease any more. It finds out by the end of a pipe. A parent-death signal
// instead would reach the command alone, not its children, and only on Linux.
type watcher struct{ pipe io.WriteCloser }

// startWatcher starts a watcher, which kills the group when it has had TERM for the grace. It is
// in a session of its own, so that what ends our group or terminal does not end it.
func startWatcher(grace time.Duration) (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // It may have been replaced. Nor does killall find that name.
	}
	cmd := exec.Command(self, WatchVerb, grace.String())
	cmd.Args[0] = "lock-watcher"
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe() // which no other process inherits
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &watcher{pipe}, nil
}

// watch says which group to watch.
func (w *watcher) watch(group int) { fmt.Fprintln(w.pipe, group) }

// end has the watcher leave the group alone. We do not wait for it: that is up to whoever adopts
// it, and it has nothing of ours but the pipe.
func (w *watcher) end() {
	fmt.Fprintln(w.pipe)
	_ = w.pipe.Close()
}

// Watch is the life of a watcher. Two lines are its orders: the group, and that it has ended.
func Watch(args []string) {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT) // meant for the command, if for anybody
	orders := bufio.NewReader(os.Stdin)
	line, _ := orders.ReadString('\n')
	group, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || len(args) != 1 {
		return // There was no command yet.
	}
	grace, err := time.ParseDuration(args[0])
	if _, killed := orders.ReadByte(); err != nil || killed == nil {
		return
	}
	j := &job{group: group}
	if grace > 0 {
		j.signal(unix.SIGTERM)
		j.signal(unix.SIGCONT) // one that is stopped would not see it
	}
	j.sweep(time.Now().Add(grace))
}
