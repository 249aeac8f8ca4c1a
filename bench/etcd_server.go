package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

const etcdVar = "HOLDFAST_BENCH_ETCD"

// init runs a member of etcd and does not return, if another process of this program wants that.
// Any program that has a [Stage] can be that process. (Wrong version: a function that each main
// and TestMain calls first. In one that forgot, each process started the next.)
func init() {
	args := strings.Split(os.Getenv(etcdVar), " ")
	if len(args) != 5 {
		return
	}
	cfg := embed.NewConfig()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.Name, cfg.Dir, cfg.InitialCluster = args[0], args[1], args[4]
	client, peer := []url.URL{{Scheme: "http", Host: args[2]}}, []url.URL{{Scheme: "http", Host: args[3]}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-e.Server.ReadyNotify()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other process closes it
	os.Exit(0)
}

// startEtcd starts a cluster of n members, each in a process of its own, which end with tb. It
// returns their addresses.
func startEtcd(tb testing.TB, n int) (clients []string) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	var peers, cluster []string
	for i := range n {
		clients, peers = append(clients, freeAddr(tb)), append(peers, freeAddr(tb))
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	var ready []*bufio.Reader
	for i := range n {
		name := fmt.Sprint("m", i)
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), etcdVar+"="+strings.Join([]string{
			name, filepath.Join(dir, name), clients[i], peers[i], strings.Join(cluster, ","),
		}, " "))
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil {
			tb.Fatal(err1, err2)
		}
		if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
			tb.Fatalf("bench: etcd: %v", err)
		}
		tb.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		ready = append(ready, bufio.NewReader(out))
	}
	for _, r := range ready {
		if line, err := r.ReadString('\n'); err != nil {
			tb.Fatalf("bench: etcd does not start: %q, %v", line, err)
		}
	}
	return clients
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
