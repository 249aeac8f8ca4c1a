package zkdriver_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// A dialer with TLS is all that it takes. It does so for each renewal, too.
func TestLocksOverTLS(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	store, pool := certificate(t)
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	zktest.Start(t, "secureClientPort="+port, "secureClientPortAddress=127.0.0.1",
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location="+store, "ssl.trustStore.location="+store, "ssl.clientAuth=none")
	open := func(config *tls.Config) driver.Driver {
		d := zkdriver.New([]string{addr}, zkdriver.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
		}))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	a, b := open(&tls.Config{RootCAs: pool}), open(&tls.Config{RootCAs: pool})
	require.Equal(t, driver.Granted, acquire(t, a, request("a")).Status)
	require.Equal(t, driver.Busy, acquire(t, b, request("b")).Status)
	for range 3 {
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease("a")})[0])
	}
	require.NoError(t, a.Release(t.Context(), lease("a")))
	require.Equal(t, driver.Granted, acquire(t, b, request("c")).Status)

	r := request("d")
	_, err := open(&tls.Config{}).Acquire(t.Context(), r)
	require.Error(t, err, "it knows nobody who vouches for the server")
}

// certificate makes one for the local address. It returns a file with it and its key, and a pool that
// trusts it.
func certificate(t *testing.T) (file string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zookeeper"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text.Bytes()))
	require.NoError(t, pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	file = filepath.Join(t.TempDir(), "server.pem")
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	return file, pool
}
