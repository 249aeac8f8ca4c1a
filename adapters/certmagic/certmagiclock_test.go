package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	certmagiclock "github.com/holdfast-go/holdfast/adapters/certmagic"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// authority issues certificates to anybody.
type authority struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int32
	within func() // while it issues
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &authority{key: key, within: func() {}}
}

func (*authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.within()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(a.issued.Add(1))), Subject: pkix.Name{CommonName: "authority"},
		DNSNames: csr.DNSNames, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// server is one of a fleet.
func server(t *testing.T, s certmagic.Storage, a *authority) *certmagic.Config {
	var c *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return c, nil }, Logger: zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	c = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{a}, Logger: zap.NewNop()})
	return c
}

func TestFleetObtainsACertificateOnce(t *testing.T) {
	store, dir, a := memdriver.New(), t.TempDir(), newAuthority(t)
	watch := holdfast.Open(store)
	defer watch.Close()
	a.within = func() {
		free := watch.Mutex("issue_cert_example.com").TryLock()
		assert.False(t, free, "certmagic does not hold the lock")
	}
	var wg sync.WaitGroup
	for range 4 {
		locks := holdfast.Open(store)
		t.Cleanup(func() { assert.NoError(t, locks.Close()) })
		s := server(t, certmagiclock.New(&certmagic.FileStorage{Path: dir}, locks), a)
		wg.Go(func() { assert.NoError(t, s.ObtainCertSync(t.Context(), "example.com")) })
	}
	wg.Wait()
	assert.EqualValues(t, 1, a.issued.Load())
	assert.True(t, watch.Mutex("issue_cert_example.com").TryLock(), "it is still locked")
}

func TestStorageLocksAsCertmagicWants(t *testing.T) {
	store := memdriver.New()
	a, b := holdfast.Open(store), holdfast.Open(store)
	defer func() { assert.NoError(t, a.Close()); assert.NoError(t, b.Close()) }()
	here, elsewhere := certmagiclock.New(nil, a), certmagiclock.New(nil, b)
	ctx, cancel := context.WithCancel(t.Context())

	require.ErrorIs(t, here.Unlock(ctx, "x"), holdfast.ErrNotHeld)
	require.ErrorIs(t, here.RenewLockLease(ctx, "x", time.Minute), holdfast.ErrNotHeld)
	require.NoError(t, here.Lock(ctx, "x"))
	require.NoError(t, here.RenewLockLease(ctx, "x", time.Minute))
	for _, s := range []*certmagiclock.Storage{here, elsewhere} {
		ok, err := s.TryLock(ctx, "x")
		require.NoError(t, err)
		require.False(t, ok)
	}
	ok, err := elsewhere.TryLock(ctx, "y")
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, a.Mutex("x").ForceUnlock(ctx))
	require.ErrorIs(t, here.RenewLockLease(ctx, "x", time.Minute), holdfast.ErrLost)
	require.ErrorIs(t, here.Unlock(ctx, "x"), holdfast.ErrLost)

	failed := make(chan error, 1)
	go func() { failed <- here.Lock(ctx, "y") }()
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	_, err = here.TryLock(ctx, "z")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, elsewhere.Unlock(ctx, "y"), "also when all is over")
}

func TestUnlockOfALostLeaseFreesNobodyElse(t *testing.T) {
	store := memdriver.New()
	ours, theirs := holdfast.Open(store), holdfast.Open(store)
	defer func() { assert.NoError(t, ours.Close()); assert.NoError(t, theirs.Close()) }()
	s, ctx := certmagiclock.New(nil, ours), t.Context()

	require.NoError(t, s.Lock(ctx, "x"))
	require.NoError(t, ours.Mutex("x").ForceUnlock(ctx))
	require.NoError(t, s.Lock(ctx, "x"), "the next holder, of the same process")
	require.ErrorIs(t, s.Unlock(ctx, "x"), holdfast.ErrLost, "FOUL: it gave up the lock of the next holder")
	require.False(t, theirs.Mutex("x").TryLock(), "FOUL: the next holder works without the lock")
	require.NoError(t, s.Unlock(ctx, "x"))
	require.True(t, theirs.Mutex("x").TryLock(), "it is still locked")
}
