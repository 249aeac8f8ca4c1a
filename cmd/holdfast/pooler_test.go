//go:build unix

package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// One command after the other meets what those before have prepared in the sessions of the pooler.
func TestLocksInPostgreSQLBehindATransactionPooler(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	dsn := pgtest.Start(t, "-c", "fsync=on").Bouncer(t, "transaction", 4)
	dir := strings.TrimPrefix(strings.Fields(dsn)[0], "host=")
	store := "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"postgres"}, "sslmode": {"disable"}}.Encode()
	for range 2 {
		require.Equal(t, 0, clitest.Command(t, nil, "migrate", "--store", store).Run())
	}
	requireLocks(t, store)
}
