package bench

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// startEtcd starts an etcd that ends with tb, or says why there is none.
func startEtcd(tb testing.TB, s *Stage) {
	tb.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		s.NoEtcd = "no etcd in PATH"
		return
	}
	client, peer := freeURL(tb), freeURL(tb)
	cmd := exec.Command(path, "--data-dir", tb.TempDir(), "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	if err := cmd.Start(); err != nil {
		tb.Fatalf("bench: etcd: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := ready(client); err != nil {
		tb.Fatalf("bench: etcd is not ready: %v", err)
	}
	s.Etcd = client
}

func freeURL(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprintf("http://%s", l.Addr())
}

func ready(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Context: ctx})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Get(ctx, "x") // waits until there is a leader
	return err
}
