package sqlfence_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The tests of database/sql are run on a copy of it in which OpenDB wraps each connector: they
// know what it does with the connections of a driver in cancellation, retries after ErrBadConn,
// the pool, options of transactions, and conversions of arguments.
func TestDatabaseSQLBehavesAsWithoutTheWrapper(t *testing.T) {
	redistest.SoakOnly(t) // those tests have bounds of their own
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "database", "sql")
	here, err := filepath.Abs("stdsql") // where the copy seems to be
	require.NoError(t, err)
	dir := t.TempDir()
	overlay := map[string]string{}
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		name := filepath.Base(file)
		switch {
		case strings.HasPrefix(name, "example"), name == "convert_test.go": // not about drivers
			continue
		case name == "sql.go", name == "sql_test.go":
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			file = filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(file, []byte(wrapping(t, name, string(text))), 0o600))
		}
		overlay[filepath.Join(here, name)] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600))

	program := filepath.Join(dir, "sql.test")
	out, err = exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", program, "github.com/holdfast-go/holdfast/fence/sqlfence/stdsql").CombinedOutput()
	require.NoError(t, err, "%s", out)
	// This one wants to see its own connector in the DB.
	tests := exec.CommandContext(t.Context(), program, "-test.v", "-test.timeout=2m", "-test.skip=^TestOpenConnector$")
	tests.Dir = dir
	out, err = tests.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Greater(t, strings.Count(string(out), "\n--- PASS"), 90)
}

// wrapping returns a file of database/sql in which connections are wrapped, and tests that look
// at a connection of their driver find it.
func wrapping(t *testing.T, name, text string) string {
	replace := func(old, by string) {
		require.Contains(t, text, old, "%s has changed", name)
		text = strings.Replace(text, old, by, 1)
	}
	replace("import (\n", "import (\n\"github.com/holdfast-go/holdfast/fence/sqlfence\"\n")
	if name == "sql.go" {
		const open = "func OpenDB(c driver.Connector) *DB {\n"
		replace(open, open+"c = sqlfence.WrapConnector(c, sqlfence.SQLite)\n")
		return text
	}
	replace("tx.txi.(*fakeTx).c.", "sqlfence.Unwrap(tx.dc.ci).(*fakeConn).")
	text = regexp.MustCompile(`([\w.\[\]]+)\.\(\*(fakeConn|ctxOnlyConn)\)`).ReplaceAllString(text, "sqlfence.Unwrap($1).(*$2)")
	// What only the standard library may import.
	replace("\t\"internal/race\"\n", "")
	replace("\t\"internal/testenv\"\n", "")
	replace("testenv.SkipIfOptimizationOff(t)", "")
	replace("race.Enabled", "false")
	return text
}
