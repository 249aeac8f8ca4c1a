// Package zktest starts servers of ZooKeeper for tests: one alone, or members of an ensemble, each in
// a process of its own that can be killed and paused.
//
// With HOLDFAST_REQUIRE_ZOOKEEPER=1 in the environment, what cannot run because ZooKeeper or Java is
// missing fails instead of being skipped.
package zktest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// jar is where Debian has the server. Its manifest names the other archives, but for two that TLS
// takes.
const (
	jar       = "/usr/share/java/zookeeper.jar"
	classPath = jar + ":/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
)

// Tick is the tick of the servers, in which they count: sessions last for two at least.
const Tick = 500 * time.Millisecond

// patience bounds the wait for a server that starts.
const patience = time.Minute

// Server is a server of ZooKeeper.
type Server struct {
	Addr string // for clients

	tb   testing.TB
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	log  *output
}

// Peer is how other members reach a member.
type Peer struct{ Quorum, Election string }

// Start starts a server alone, which ends with the test.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	Require(tb)
	s := prepare(tb, tb.TempDir(), 0, settings)
	tb.Cleanup(s.Kill)
	s.start()
	s.await()
	return s
}

// Shared is a server that tests share which run at the same time: to start a virtual machine of Java
// takes longer than most of what they do with it. It ends with the last of them. Nobody kills or pauses
// it.
type Shared struct {
	settings []string

	mu    sync.Mutex
	users int
	one   *Server
}

// Share returns a server that starts when it is used.
func Share(settings ...string) *Shared { return &Shared{settings: settings} }

// Use returns the server, for the time of a test.
func (s *Shared) Use(tb testing.TB) *Server {
	tb.Helper()
	Require(tb)
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.users == 0
	if first {
		dir, err := os.MkdirTemp("", "holdfast-zookeeper-")
		require.NoError(tb, err)
		s.one = prepare(tb, dir, 0, s.settings)
	}
	s.users++
	tb.Cleanup(s.leave)
	if first {
		s.one.start()
		s.one.await()
	}
	return s.one
}

func (s *Shared) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.one.Kill()
		_ = os.RemoveAll(s.one.dir)
	}
}

// Ensemble starts n members, which end with the test. reach, if not nil, says how one member
// reaches another, such as through a proxy.
func Ensemble(tb testing.TB, n int, reach func(from, to int, at Peer) Peer, settings ...string) []*Server {
	tb.Helper()
	Require(tb)
	peers := make([]Peer, n)
	for i := range peers {
		peers[i] = Peer{redistest.FreeAddr(tb), redistest.FreeAddr(tb)}
	}
	all := make([]*Server, n)
	for i := range all {
		own := append([]string{"initLimit=10", "syncLimit=4"}, settings...)
		for j, at := range peers {
			if reach != nil && i != j {
				at = reach(i, j, at)
			}
			_, election, _ := net.SplitHostPort(at.Election)
			own = append(own, fmt.Sprintf("server.%d=%s:%s", j+1, at.Quorum, election))
		}
		all[i] = prepare(tb, tb.TempDir(), i+1, own)
		tb.Cleanup(all[i].Kill)
		all[i].start()
	}
	for _, s := range all {
		s.await()
	}
	return all
}

// Found reports whether there is a ZooKeeper to start.
func Found() bool {
	_, noJava := exec.LookPath("java")
	_, noJar := os.Stat(jar)
	return noJava == nil && noJar == nil
}

// Require skips a test that cannot run without ZooKeeper.
func Require(tb testing.TB) {
	tb.Helper()
	redistest.RequireReal(tb)
	if Found() {
		return
	}
	if os.Getenv("HOLDFAST_REQUIRE_ZOOKEEPER") == "1" {
		tb.Fatal("ZooKeeper is missing: apt-get install zookeeperd")
	}
	tb.Skip("ZooKeeper is missing: apt-get install zookeeperd")
}

func prepare(tb testing.TB, dir string, id int, settings []string) *Server {
	tb.Helper()
	s := &Server{Addr: redistest.FreeAddr(tb), tb: tb, dir: dir}
	_, port, _ := net.SplitHostPort(s.Addr)
	config := append([]string{
		fmt.Sprint("tickTime=", Tick.Milliseconds()), "dataDir=" + s.dir, "clientPort=" + port, "clientPortAddress=127.0.0.1",
		"admin.enableServer=false", "maxClientCnxns=0",
		"maxSessionTimeout=2000000000", // The suite has leases of a day.
		"forceSync=no",                 // What is tested here is not the disk.
	}, settings...)
	require.NoError(tb, os.WriteFile(filepath.Join(s.dir, "zoo.cfg"), []byte(strings.Join(config, "\n")+"\n"), 0o600))
	if id > 0 {
		require.NoError(tb, os.WriteFile(filepath.Join(s.dir, "myid"), []byte(fmt.Sprint(id)), 0o600))
	}
	return s
}

func (s *Server) start() {
	s.tb.Helper()
	s.log = &output{}
	s.cmd = exec.Command("java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", classPath, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg"))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	require.NoError(s.tb, tied.Start(s.cmd, syscall.SIGKILL))
	done := make(chan struct{})
	s.done = done
	cmd := s.cmd
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
}

// await waits until the server serves clients.
func (s *Server) await() {
	s.tb.Helper()
	require.Eventually(s.tb, func() bool {
		select {
		case <-s.done:
			s.tb.Fatalf("ZooKeeper does not start:\n%s", s.log)
		default:
		}
		return s.Mode() != ""
	}, patience, 50*time.Millisecond, "ZooKeeper does not start")
}

// Mode is "standalone", "leader" or "follower", or empty if the server does not serve clients.
func (s *Server) Mode() string {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("srvr"))
	var answer bytes.Buffer
	_, _ = answer.ReadFrom(conn)
	_, mode, _ := strings.Cut(answer.String(), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// Kill ends the server at once.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Restart starts a server that was killed.
func (s *Server) Restart() {
	s.tb.Helper()
	s.start()
	s.await()
}

// Pause stops the process, as a long collection of garbage or a hypervisor does.
func (s *Server) Pause() { require.NoError(s.tb, s.cmd.Process.Signal(syscall.SIGSTOP)) }

// Resume lets the process go on.
func (s *Server) Resume() { require.NoError(s.tb, s.cmd.Process.Signal(syscall.SIGCONT)) }

// Addrs are those of all servers.
func Addrs(all []*Server) (addrs []string) {
	for _, s := range all {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Leader finds the leader among members.
func Leader(tb testing.TB, all []*Server) *Server {
	tb.Helper()
	var found *Server
	require.Eventually(tb, func() bool {
		for _, s := range all {
			if s.Mode() == "leader" {
				found = s
			}
		}
		return found != nil
	}, patience, 100*time.Millisecond, "there is no leader")
	return found
}

// Others are all members but one.
func Others(all []*Server, but *Server) (others []*Server) {
	for _, s := range all {
		if s != but {
			others = append(others, s)
		}
	}
	return others
}

// output is what a server has said.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
