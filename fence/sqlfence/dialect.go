package sqlfence

import "fmt"

// Dialect is the SQL of a database.
type Dialect int

// The dialects. SQLite takes 3.24 or later.
const (
	Postgres Dialect = iota + 1 // and what understands its INSERT … ON CONFLICT and FOR SHARE
	MySQL                       // and MariaDB
	SQLite
)

// Schema returns the statement that makes the table holdfast_fence unless it exists.
func (d Dialect) Schema() string { return d.statements().schema }

// statements are those of a dialect. They take the key of a lock, and then as often as they
// need it the fence.
type statements struct {
	schema string

	// record sets the fence of a lock, unless a larger one is there, and keeps the row locked.
	record  string
	numbers int // how often it takes the fence

	// refuses says that record fails if a larger fence is there. Otherwise it affects no row.
	refuses bool

	// share reads the fence and keeps those out that would record another, seed makes a row
	// if there was none to lock. An empty seed says that a transaction sees to that itself.
	share, seed string

	// look reads the fence.
	look string
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
	},
	// A transaction cannot write here if another has written since it began to read. Without
	// a rowid the check does not change what last_insert_rowid() says.
	SQLite - 1: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (name TEXT PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID`,
		record: `INSERT INTO holdfast_fence (name, fence) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET fence = excluded.fence WHERE holdfast_fence.fence <= excluded.fence`,
		numbers: 1,
		share:   `SELECT fence FROM holdfast_fence WHERE name = ?`,
		look:    `SELECT fence FROM holdfast_fence WHERE name = ?`,
	},
}
