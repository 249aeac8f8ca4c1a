package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RealTLS is [Real] with a second port for clients that have the option secure. Either side
// shows the other a certificate, and accepts no other.
func RealTLS(tb testing.TB, args ...string) (s *Server, secure func(*redis.Options)) {
	tb.Helper()
	cert, file := certificate(tb)
	port := strconv.Itoa(randomPort())
	s = Real(tb, append([]string{
		"--tls-port", port, "--tls-auth-clients", "yes",
		"--tls-cert-file", file, "--tls-key-file", file, "--tls-ca-cert-file", file,
	}, args...)...)
	trusted := x509.NewCertPool()
	trusted.AddCert(cert.Leaf)
	return s, func(o *redis.Options) {
		o.Addr = net.JoinHostPort(s.host(), port)
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
}

// UnknownCertificate returns a file with another certificate and its key, which no client accepts.
func UnknownCertificate(tb testing.TB) (file string) {
	tb.Helper()
	_, file = certificate(tb)
	return file
}

// certificate makes one for the loopback interface, which signs itself. The file has its key,
// too.
func certificate(tb testing.TB) (cert tls.Certificate, file string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	file = filepath.Join(tb.TempDir(), "server.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	if cert, err = tls.X509KeyPair(text, text); err != nil {
		tb.Fatal(err)
	}
	return cert, file
}
