//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// requireLocks asks for everything that a store can do.
func requireLocks(t *testing.T, store string) {
	t.Helper()
	in := func(args ...string) *process {
		p := command(t, nil, args...)
		p.cmd.Env = append(p.cmd.Env, storeEnv+"="+store, prefixEnv+"=cli")
		return p
	}
	holder := in("run", "--lock", "a b", "--", "sh", "-c", "echo fence $HOLDFAST_FENCE; exec sleep 1000").start()
	fence := strings.TrimPrefix(string(holder.awaitOutput(`fence \d+`)), "fence ")

	p := in("inspect", "a b")
	require.Equal(t, 0, p.run())
	assert.Contains(t, p.stdout.String(), `rwmutex "a b": held, 0 wait`)
	assert.Contains(t, p.stdout.String(), fence)

	p = in("ls", "a")
	require.Equal(t, 0, p.run())
	assert.Regexp(t, `(?m)^a b +rwmutex .* `+fence+` +0$`, p.stdout.String())
	p = in("ls", "b")
	require.Equal(t, 0, p.run())
	assert.Empty(t, p.stdout.String())

	p = in("run", "--lock", "a b", "-n", "--", "true")
	require.Equal(t, exitNotAcquired, p.run())
	assert.Contains(t, p.stderr.String(), `"a b" is held by `)

	require.Equal(t, 0, in("unlock", "a b", "--force", "--yes").run())
	assert.Equal(t, exitLost, holder.wait())
	require.Equal(t, 1, in("inspect", "a b").run())

	p = in("doctor")
	assert.Equal(t, 0, p.run())
	assert.Regexp(t, `(?m)^ok    lock +taken in .*, handed over in `, p.stdout.String())
	assert.Contains(t, p.stdout.String(), "\n0 failures, ")
}

func TestLocksInSentinelGroup(t *testing.T) {
	t.Parallel()
	sentinels := redistest.NewSentinels(t).URL()
	requireLocks(t, sentinels)
	requireLocks(t, strings.Replace(sentinels, "redis:", "redis+sentinel:", 1))

	alone, _, _ := strings.Cut(sentinels, "?")
	p := command(t, nil, "ls", "--store", alone)
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "this is a Sentinel, which keeps no locks")

	p = command(t, nil, "doctor", "--store", alone+"?master_name=other")
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "the Sentinel knows no master of that name")
}

func TestLocksInPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "-c", "fsync=on") // the doctor looks
	dir := strings.TrimPrefix(strings.Fields(server.DSN())[0], "host=")
	store := "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"postgres"}, "sslmode": {"disable"}}.Encode()

	p := command(t, nil, "ls", "--store", store)
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "there is no schema holdfast: have pgdriver.Migrate run once")

	pool, err := pgxpool.New(t.Context(), server.DSN())
	require.NoError(t, err)
	require.NoError(t, pgdriver.Migrate(t.Context(), pool))
	pool.Close()
	requireLocks(t, store)
}

func TestLocksInEtcd(t *testing.T) {
	t.Parallel()
	store := "etcd://" + startEtcd(t)
	requireLocks(t, store)
	p := command(t, nil, "run", "--store", store, "--lock", "a", "--ttl", "1", "--", "true")
	assert.Equal(t, exitUsage, p.run())
	assert.Contains(t, p.stderr.String(), "--ttl: on this store it must be at least 2s")
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
	case <-time.After(generous):
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
			p := command(t, nil, append(args[:1:1], append([]string{"--store", c.store}, args[1:]...)...)...)
			assert.Equal(t, exitUnavailable, p.run(), "%s: %q", name, args)
			assert.Contains(t, p.stderr.String(), c.want, "%s: %q", name, args)
			if name != "no right" { // then the library warns that it cannot release either
				assert.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), "%s: %q says more than a line:\n%s", name, args, &p.stderr)
			}
		}
	}

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	p := command(t, nil, "run", "--store", at(""), "--password-file", file, "--lock", "a", "--", "true")
	assert.Equal(t, 0, p.run())
}

func TestRedisURLOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	p := command(t, nil, "run", "--lock", "a", "--", "true")
	p.cmd.Env = append(p.cmd.Env, "REDIS_URL="+urlOf(s))
	// A variable that is empty counts as not set.
	for _, name := range []string{storeEnv, "HOLDFAST_REDIS", prefixEnv, "HOLDFAST_CACERT"} {
		p.cmd.Env = append(p.cmd.Env, name+"=")
	}
	require.Equal(t, 0, p.run())
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
		{[]string{"--store", "rediss://" + m.Addr(), "--cacert", other}, exitUnavailable, "its certificate is not trusted"},
		{[]string{"--store", "rediss://" + m.Addr()}, exitUnavailable, "give its authority with --cacert"},
		{[]string{"--store", "rediss://" + plain.Addr()}, exitUnavailable, "perhaps one side wants TLS"},
	} {
		p := command(t, nil, append([]string{"run", "--lock", "a"}, append(c.args, "--", "true")...)...)
		assert.Equal(t, c.code, p.run(), "%q", c.args)
		assert.Contains(t, p.stderr.String(), c.want, "%q", c.args)
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
