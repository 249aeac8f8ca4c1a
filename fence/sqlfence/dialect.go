package sqlfence

import "fmt"

// Dialect is the SQL of a database.
type Dialect int

// The dialects. SQLite takes 3.24 or later.
const (
	Postgres Dialect = iota + 1 // 10 or later
	MySQL                       // and MariaDB
	SQLite
)

// Schema returns the statement that makes the table holdfast_fence unless it exists.
func (d Dialect) Schema() string { return d.statements().schema }

// statements are those of a dialect. They take the key of a lock, and then as often as they
// need it the fence.
type statements struct {
	schema string

	// record sets the fence of a lock, unless a larger one is there. It waits for all that share
	// the row, and keeps it for itself.
	record  string
	numbers int // how often it takes the fence

	// refuses says that record fails if a larger fence is there. Otherwise it affects no row.
	refuses bool

	// share reads the fence and keeps those out that would record another, seed makes a row
	// if there was none to lock. An empty seed says that a transaction sees to that itself.
	share, seed string

	// claim comes before share, so that a later write does not fail for what was read first.
	claim string

	// look reads the fence.
	look string

	// shareCosts says that a query that only reads should look, because share is like a write. Where
	// the database would not notice that it wrote on an old view, wrote tells whether it did.
	shareCosts bool
	wrote      string

	// After an error the database may have ended the transaction by itself, and what follows in it
	// would be carried out at once, for each statement. Then one of within fails, or anew succeeds.
	// It does not need to be asked where only a rollback can follow.
	within []string
	anew   string

	// nests says that there may be comments in comments.
	nests bool

	// commits says that the database commits before statements such as CREATE TABLE.
	commits bool
}

func (d Dialect) statements() *statements {
	if d < 1 || int(d) > len(dialects) {
		panic(fmt.Sprintf("sqlfence: no dialect %d", int(d)))
	}
	return &dialects[d-1]
}

var dialects = [...]statements{
	Postgres - 1: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (name text PRIMARY KEY, fence bigint NOT NULL)`,
		record: `INSERT INTO holdfast_fence (name, fence) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE holdfast_fence.fence <= excluded.fence`,
		numbers: 1,
		share:   `SELECT fence FROM holdfast_fence WHERE name = $1 FOR SHARE`,
		seed:    `INSERT INTO holdfast_fence (name, fence) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING`,
		look:    `SELECT fence FROM holdfast_fence WHERE name = $1`,

		// A lock of a row is written to the log, and the commit waits for the disk.
		shareCosts: true,
		wrote:      `SELECT CASE WHEN txid_current_if_assigned() IS NULL THEN 0 ELSE 1 END`,
		nests:      true,
	},
	// How many rows are affected does not tell here: it depends on an option of the connection
	// whether a row counts that is found and stays as it is. So the number is made one that
	// no column can hold. The name is binary because texts that differ in case, or in spaces at the
	// end, may be equal.
	MySQL - 1: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (name VARBINARY(2100) PRIMARY KEY, fence BIGINT NOT NULL) ENGINE=InnoDB`,
		record: `INSERT INTO holdfast_fence (name, fence) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE fence = IF(fence <= ?, ?, fence + 9223372036854775807)`,
		numbers: 3,
		refuses: true,
		share:   `SELECT fence FROM holdfast_fence WHERE name = ? LOCK IN SHARE MODE`,
		seed:    `INSERT IGNORE INTO holdfast_fence (name, fence) VALUES (?, 0)`,
		look:    `SELECT fence FROM holdfast_fence WHERE name = ?`,
		within:  []string{`SAVEPOINT holdfast_fence`, `RELEASE SAVEPOINT holdfast_fence`}, // a deadlock
		commits: true,
	},
	// A transaction cannot write here if another has written since it began to read, so to look
	// is enough. One that is there to write claims the only place for that before it looks, as it
	// could not wait for it afterwards. Without a rowid the check does not change what
	// last_insert_rowid() says.
	SQLite - 1: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (name TEXT PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID`,
		record: `INSERT INTO holdfast_fence (name, fence) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE holdfast_fence.fence <= excluded.fence`,
		numbers: 1,
		share:   `SELECT fence FROM holdfast_fence WHERE name = ?`,
		look:    `SELECT fence FROM holdfast_fence WHERE name = ?`,

		claim:      `DELETE FROM holdfast_fence WHERE 0`,
		shareCosts: true,
		anew:       `BEGIN`, // an interrupt, a full disk, OR ROLLBACK
	},
}
