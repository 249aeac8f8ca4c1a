//go:build unix

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// requireLocks asks for everything that a store can do.
func requireLocks(t *testing.T, at string) {
	t.Helper()
	prefix := "cli"
	if strings.HasPrefix(at, "postgres:") {
		prefix = "" // it has none
	}
	in := func(args ...string) *clitest.Process {
		p := clitest.Command(t, nil, args...)
		p.Cmd.Env = append(p.Cmd.Env, store.URLEnv+"="+at, store.PrefixEnv+"="+prefix)
		return p
	}
	holder := in("run", "--lock", "a b", "--", "sh", "-c", "echo fence $HOLDFAST_FENCE; exec sleep 1000").Start()
	fence := strings.TrimPrefix(string(holder.AwaitOutput(`fence \d+`)), "fence ")

	p := in("inspect", "a b")
	require.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), `rwmutex "a b": held, 0 wait`)
	assert.Contains(t, p.Stdout.String(), fence)

	p = in("ls", "a")
	require.Equal(t, 0, p.Run())
	assert.Regexp(t, `(?m)^a b +rwmutex .* `+fence+` +0$`, p.Stdout.String())
	p = in("ls", "b")
	require.Equal(t, 0, p.Run())
	assert.Empty(t, p.Stdout.String())

	p = in("run", "--lock", "a b", "-n", "--", "true")
	require.Equal(t, exit.NotAcquired, p.Run())
	assert.Contains(t, p.Stderr.String(), `"a b" is held by `)

	require.Equal(t, 0, in("unlock", "a b", "--force", "--yes").Run())
	assert.Equal(t, exit.Lost, holder.Wait())
	require.Equal(t, 1, in("inspect", "a b").Run())

	requireVerbs(t, in)

	p = in("doctor")
	assert.Equal(t, 0, p.Run())
	// With a warning if this machine is too busy to be fast.
	assert.Regexp(t, `(?m)^(ok  |warn)  lock +taken in .*, handed over in `, p.Stdout.String())
	assert.Contains(t, p.Stdout.String(), "\n0 failures, ")
}

// requireVerbs has a lease go from one process to the next.
func requireVerbs(t *testing.T, in func(...string) *clitest.Process) {
	t.Helper()
	p := in("acquire", "deploy", "--ttl", "1m", "--json")
	require.Equal(t, 0, p.Run())
	var lease struct {
		Token string
		Fence int64
	}
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &lease))
	require.Equal(t, exit.NotAcquired, in("acquire", "deploy", "-n").Run())
	require.Equal(t, exit.NotAcquired, in("wait", "deploy", "--timeout", "0.1").Run())
	by := func(verb string, args ...string) int {
		p := in(append([]string{verb}, args...)...)
		p.Cmd.Env = append(p.Cmd.Env, guard.TokenEnv+"="+lease.Token)
		return p.Run()
	}
	require.Equal(t, 0, by("renew", "--ttl", "1h"))
	p = in("inspect", "deploy")
	require.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), fmt.Sprint(lease.Fence))
	require.Equal(t, 0, by("release"))
	require.Equal(t, 0, in("wait", "deploy").Run())
	require.Equal(t, exit.Lost, by("renew"))
	require.Equal(t, exit.Lost, by("release"))

	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	p = in("acquire", "deploy", "-n")
	p.Cmd.Stdout = w
	require.Equal(t, exit.Unavailable, p.Run(), "nobody reads the token")
	require.NoError(t, w.Close())

	p = in("acquire", "deploy", "-n", "--ttl", "2")
	require.Equal(t, 0, p.Run(), "nobody has it")
	next := in("acquire", "deploy", "--wait", "1m")
	require.Equal(t, 0, next.Run(), "a lease that nobody renews ends")
	lease.Token = strings.TrimSpace(p.Stdout.String())
	assert.Equal(t, exit.Lost, by("renew"), "by its TTL")
	lease.Token = strings.TrimSpace(next.Stdout.String())
	assert.Equal(t, 0, by("release"))
}

func TestLocksInSentinelGroup(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	sentinels := redistest.NewSentinels(t).URL()
	requireLocks(t, sentinels)
	requireLocks(t, strings.Replace(sentinels, "redis:", "redis+sentinel:", 1))

	alone, _, _ := strings.Cut(sentinels, "?")
	p := clitest.Command(t, nil, "ls", "--store", alone)
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "this is a Sentinel, which keeps no locks")

	p = clitest.Command(t, nil, "doctor", "--store", alone+"?master_name=other")
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "the Sentinel knows no master of that name")
}

func TestLocksOfAllNodesOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	locks := holdfast.New(c.Client(t))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	for i := range 20 {
		_, err := locks.Mutex(fmt.Sprint("lock ", i)).TryLease(t.Context())
		require.NoError(t, err)
	}
	url := "redis+cluster://" + c.Nodes[0].Addr() + "?addr=" + c.Nodes[1].Addr()
	p := clitest.Command(t, nil, "ls", "--store", url)
	require.Equal(t, 0, p.Run())
	assert.Equal(t, 21, strings.Count(p.Stdout.String(), "\n"))

	assert.Equal(t, 0, clitest.Command(t, nil, "run", "--store", url, "--lock", "x", "--", "true").Run())

	// One node alone does not have all locks.
	for _, args := range [][]string{{"ls"}, {"inspect", "lock 1"}, {"run", "--lock", "lock 1", "--", "true"}} {
		p := clitest.Command(t, nil, append(args[:1:1], append([]string{"--store", "redis://" + c.Nodes[0].Addr()}, args[1:]...)...)...)
		assert.Equal(t, exit.Unavailable, p.Run(), "%q", args)
		assert.Contains(t, p.Stderr.String(), "this is a node of a Cluster: use redis+cluster://", "%q", args)
	}
}

func TestLocksInPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "-c", "fsync=on") // the doctor looks
	dir := strings.TrimPrefix(strings.Fields(server.DSN())[0], "host=")
	store := "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"postgres"}, "sslmode": {"disable"}}.Encode()

	p := clitest.Command(t, nil, "ls", "--store", store)
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "there is no schema holdfast: holdfast migrate makes it")

	for _, done := range []string{"was made", "is there already"} {
		p = clitest.Command(t, nil, "migrate", "--store", store)
		require.Equal(t, 0, p.Run())
		assert.Regexp(t, `^the schema holdfast, version \d+, `+done+` in PostgreSQL database "postgres" at `, p.Stdout.String())
	}
	requireLocks(t, store)

	p = clitest.Command(t, nil, "run", "--store", store, "--lock", "api", "--limit", "2", "--", "true")
	require.Equal(t, 0, p.Run())
	p = clitest.Command(t, nil, "resize", "--store", store, "api", "--limit", "3")
	require.Equal(t, 0, p.Run(), p.Stderr.String())
	assert.Contains(t, p.Stdout.String(), "has a limit of 3; nobody uses it")

	// What it prints does the same.
	p = clitest.Command(t, nil, "migrate", "--print")
	require.Equal(t, 0, p.Run())
	conn, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	const functions = `SELECT string_agg(pg_get_functiondef(oid), '' ORDER BY oid::regprocedure::text) FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace`
	var made, printed string
	require.NoError(t, conn.QueryRow(t.Context(), functions).Scan(&made))
	_, err = conn.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE")
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), p.Stdout.String()).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), functions).Scan(&printed))
	assert.Equal(t, made, printed)
	require.Equal(t, 0, clitest.Command(t, nil, "ls", "--store", store).Run())

	p = clitest.Command(t, nil, "migrate", "--store", "redis://localhost")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), "only a PostgreSQL has a schema")
}

// requireNoResize says that a limit cannot be changed on that store, which no retry mends.
func requireNoResize(t *testing.T, store string) {
	t.Helper()
	p := clitest.Command(t, nil, "resize", "--store", store, "api", "--limit", "3")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), "cannot change the limit of a semaphore")
}

func TestLocksInEtcd(t *testing.T) {
	t.Parallel()
	store := "etcd://" + startEtcd(t)
	requireLocks(t, store)
	requireNoResize(t, store)
	p := clitest.Command(t, nil, "run", "--store", store, "--lock", "a", "--ttl", "1", "--", "true")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), "--ttl: on this store it must be at least 2s")
}

func TestLocksInZooKeeper(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	server := zktest.Start(t)
	store := "zk://" + server.Addr
	requireLocks(t, store)
	requireNoResize(t, store)
	p := clitest.Command(t, nil, "run", "--store", store, "--lock", "a", "--ttl", "1", "--", "true")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), "--ttl: on this store it must be at least 2s")

	mine, other := "zk://me:secret@"+server.Addr, "zk://you:secret@"+server.Addr
	require.Equal(t, 0, clitest.Command(t, nil, "run", "--store", mine, "--prefix", "mine", "--lock", "a", "--", "true").Run())
	p = clitest.Command(t, nil, "run", "--store", other, "--prefix", "mine", "--lock", "a", "--", "true")
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "not authenticated")

	p = clitest.Command(t, nil, "doctor", "--store", store)
	assert.Equal(t, 0, p.Run())
	for _, want := range []string{"ZooKeeper 3.", "standalone", "have 3 or 5 members"} {
		assert.Contains(t, p.Stdout.String(), want)
	}
}

// A path would be a chroot to other clients of ZooKeeper. Without it the locks are in another place.
func TestZooKeeperWithAPathIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"zk://localhost:1/chroot", "zk://u:secret@localhost:1,localhost:2/a/b", "zks://localhost:1//"} {
		p := clitest.Command(t, nil, "ls", "--store", url)
		assert.Equal(t, exit.Usage, p.Run(), url)
		assert.Contains(t, p.Stderr.String(), "--store: zk:// takes no path: say with --prefix below which node the locks are")
		assert.NotContains(t, p.Stderr.String(), "secret")
	}
	for _, url := range []string{"zk://localhost:1?prefix=x", "zk://localhost:1/?prefix=x", "zk://u:secret@localhost:1#x"} {
		p := clitest.Command(t, nil, "ls", "--store", url)
		assert.Equal(t, exit.Usage, p.Run(), url)
		assert.Contains(t, p.Stderr.String(), "--store: zk:// takes no p")
		assert.NotContains(t, p.Stderr.String(), "secret")
	}
	p := clitest.Command(t, nil, "ls", "--store", "zk://localhost:1/")
	assert.Equal(t, exit.Unavailable, p.Run())
}

// startEtcd starts an etcd of one member in this process, and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	somewhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = somewhere, somewhere
	cfg.UnsafeNoFsync = true
	e, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(clitest.Generous):
		require.Fail(t, "etcd does not start")
	}
	return e.Clients[0].Addr().String()
}

func TestServerThatRefusesIsExplained(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+get", "+evalsha", "+eval", "+time").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "secret").Err())
	addr := s.Addr()
	at := func(login string) string { return "redis://" + login + addr }
	if s.Network() == "unix" {
		at = func(login string) string { return "unix://" + login + addr }
	}
	for name, c := range map[string]struct{ store, want string }{
		"no password":    {at(""), " wants a password: "},
		"wrong password": {at("reader:wrong@"), " refuses the user or the password: "},
		"no right":       {at("reader:pw@"), "the user lacks a right; holdfast doctor says which: NOPERM in a script"},
	} {
		for _, args := range [][]string{{"run", "--lock", "a", "--", "true"}, {"inspect", "a"}} {
			p := clitest.Command(t, nil, append(args[:1:1], append([]string{"--store", c.store}, args[1:]...)...)...)
			assert.Equal(t, exit.Unavailable, p.Run(), "%s: %q", name, args)
			assert.Contains(t, p.Stderr.String(), c.want, "%s: %q", name, args)
			if name != "no right" { // then the library warns that it cannot release either
				assert.Equal(t, 1, strings.Count(p.Stderr.String(), "\n"), "%s: %q says more than a line:\n%s", name, args, &p.Stderr)
			}
		}
	}

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	p := clitest.Command(t, nil, "run", "--store", at(""), "--password-file", file, "--lock", "a", "--", "true")
	assert.Equal(t, 0, p.Run())
}

func TestRedisURLOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	p := clitest.Command(t, nil, "run", "--lock", "a", "--", "true")
	p.Cmd.Env = append(p.Cmd.Env, "REDIS_URL="+clitest.URL(s))
	// A variable that is empty counts as not set.
	for _, name := range []string{store.URLEnv, "HOLDFAST_REDIS", store.PrefixEnv, "HOLDFAST_CACERT"} {
		p.Cmd.Env = append(p.Cmd.Env, name+"=")
	}
	require.Equal(t, 0, p.Run())
	assert.NotEmpty(t, s.Client(t).Keys(t.Context(), "holdfast:2:*").Val())
}

func TestTLSNeedsATrustedCertificate(t *testing.T) {
	t.Parallel()
	certificate, ca := selfSigned(t)
	_, other := selfSigned(t)
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.StartTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	t.Cleanup(m.Close)
	plain := redistest.Mini(t)

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--store", "rediss://" + m.Addr(), "--cacert", ca}, 0, ""},
		{[]string{"--store", "rediss://" + m.Addr(), "--cacert", other}, exit.Unavailable, "its certificate is not trusted"},
		{[]string{"--store", "rediss://" + m.Addr()}, exit.Unavailable, "give its authority with --cacert"},
		{[]string{"--store", "rediss://" + plain.Addr()}, exit.Unavailable, "perhaps one side wants TLS and the other does not: rediss:// is with TLS, redis:// without; or a proxy is in between that does not know HELLO"},
	} {
		p := clitest.Command(t, nil, append([]string{"run", "--lock", "a"}, append(c.args, "--", "true")...)...)
		assert.Equal(t, c.code, p.Run(), "%q", c.args)
		assert.Contains(t, p.Stderr.String(), c.want, "%q", c.args)
	}
}

// selfSigned returns a certificate for 127.0.0.1, and the name of a file with it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
