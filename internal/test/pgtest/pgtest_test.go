package pgtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestDataSurviveARestartAndACrash(t *testing.T) {
	s := pgtest.Start(t, "-c", "max_connections=17")
	ask := func(sql string) string {
		t.Helper()
		out, err := exec.Command(s.Program("psql"), s.DSN(), "-XAtc", sql).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	ask("CREATE TABLE t (n int); INSERT INTO t VALUES (42)")
	assert.Equal(t, "17", ask("SHOW max_connections"))
	s.Restart()
	assert.Equal(t, "42", ask("SELECT n FROM t"))
	s.Kill()
	s.Restart()
	assert.Equal(t, "42", ask("SELECT n FROM t"))
	s.Stop()
	assert.Error(t, exec.Command(s.Program("psql"), s.DSN(), "-c", "SELECT 1").Run())
}

func init() {
	crew.Register("server", func() {
		testing.Init()
		testing.Main(nil, []testing.InternalTest{{Name: "Server", F: func(t *testing.T) {
			s := pgtest.Start(t)
			crew.Report(s.Program("psql") + "|" + s.DSN())
			select {}
		}}}, nil, nil)
	})
}

func TestMain(m *testing.M) { redistest.Main(m) }

func TestServerEndsWithATestThatWasKilled(t *testing.T) {
	pgtest.Start(t) // or is skipped
	child := crew.Start(t, "server")
	psql, dsn, _ := strings.Cut(crew.Hear[string](child), "|")
	dir, _, _ := strings.Cut(strings.TrimPrefix(dsn, "host="), " ")
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the child cannot
	works := func() bool { return exec.Command(psql, dsn, "-Xc", "SELECT 1").Run() == nil }
	require.True(t, works())
	child.Kill()
	assert.Eventually(t, func() bool { return !works() }, 10*time.Second, 10*time.Millisecond)
}
