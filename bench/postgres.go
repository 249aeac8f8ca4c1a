package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

// HoldfastPostgres is this library on PostgreSQL.
var HoldfastPostgres = Contender{
	Name:  "holdfast postgres",
	Role:  Ours,
	Setup: "Open(pgdriver.New(pool)) with defaults; Lease and Release",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		pool, err := s.pool(ctx)
		if err != nil {
			return nil, err
		}
		return &pgProcess{holdfastProcess{locks: holdfast.Open(pgdriver.New(pool))}, pool}, nil
	},
}

type pgProcess struct {
	holdfastProcess
	pool *pgxpool.Pool
}

func (p *pgProcess) Close() error {
	err := p.locks.Close()
	p.pool.Close()
	return err
}

// RowLock is a transaction that stays open for as long as the lock is held.
var RowLock = Contender{
	Name:  "row lock",
	Role:  Peer,
	Setup: "pgx; BEGIN, SELECT FOR UPDATE of a row that is there, COMMIT: a connection and a transaction for each who holds or waits",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		return openTable(ctx, s, `CREATE TABLE IF NOT EXISTS bench_row (name text PRIMARY KEY)`, func(p *tableProcess, name string) (Locker, error) {
			_, err := p.pool.Exec(ctx, `INSERT INTO bench_row VALUES ($1) ON CONFLICT DO NOTHING`, name)
			return &rowLocker{p.pool, name, nil}, err
		})
	},
}

type rowLocker struct {
	pool *pgxpool.Pool
	name string
	tx   pgx.Tx
}

func (l *rowLocker) Lock(ctx context.Context) (err error) {
	if l.tx, err = l.pool.Begin(ctx); err != nil {
		return err
	}
	if _, err = l.tx.Exec(ctx, `SELECT FROM bench_row WHERE name = $1 FOR UPDATE`, l.name); err != nil {
		err = errors.Join(err, l.tx.Rollback(context.Background()))
	}
	return err
}

func (l *rowLocker) Unlock(ctx context.Context) error { return l.tx.Commit(ctx) }

// AdvisoryLock writes nothing.
var AdvisoryLock = Contender{
	Name:  "advisory lock",
	Role:  Peer,
	Setup: "pgx; pg_advisory_lock and pg_advisory_unlock: a session for each who holds or waits, no lease, no fence, nothing on disk",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		return openTable(ctx, s, ``, func(p *tableProcess, name string) (Locker, error) {
			return &advisoryLocker{p.pool, name, nil}, nil
		})
	},
}

type advisoryLocker struct {
	pool *pgxpool.Pool
	name string
	conn *pgxpool.Conn
}

func (l *advisoryLocker) Lock(ctx context.Context) (err error) {
	if l.conn, err = l.pool.Acquire(ctx); err != nil {
		return err
	}
	if _, err = l.conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, l.name); err != nil {
		l.conn.Release()
	}
	return err
}

func (l *advisoryLocker) Unlock(ctx context.Context) error {
	defer l.conn.Release()
	_, err := l.conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, l.name)
	return err
}

// LeaseRow is what people write by hand where nothing may stay open.
var LeaseRow = Contender{
	Name:  "lease row",
	Role:  Peer,
	Setup: "pgx; a row with a token and the end of its lease, INSERT … ON CONFLICT DO UPDATE WHERE it is over, again after 1 ms; DELETE",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		return openTable(ctx, s, `CREATE TABLE IF NOT EXISTS bench_lease (name text PRIMARY KEY, token text, until timestamptz)`,
			func(p *tableProcess, name string) (Locker, error) {
				return &leaseRowLocker{p.pool, name, rand.Text()}, nil
			})
	},
}

type leaseRowLocker struct {
	pool        *pgxpool.Pool
	name, token string
}

func (l *leaseRowLocker) Lock(ctx context.Context) error {
	for {
		tag, err := l.pool.Exec(ctx, `INSERT INTO bench_lease AS l VALUES ($1, $2, clock_timestamp() + $3::interval)
			ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until WHERE l.until < clock_timestamp()`, l.name, l.token, ttl)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		if err := sleep(ctx, retryDelay); err != nil {
			return err
		}
	}
}

func (l *leaseRowLocker) Unlock(ctx context.Context) error {
	_, err := l.pool.Exec(ctx, `DELETE FROM bench_lease WHERE name = $1 AND token = $2`, l.name, l.token)
	return err
}

// tableProcess is a process with locks that are made of plain SQL.
type tableProcess struct {
	pool *pgxpool.Pool
	lock func(p *tableProcess, name string) (Locker, error)
}

func openTable(ctx context.Context, s *Stage, table string, lock func(*tableProcess, string) (Locker, error)) (Process, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return nil, err
	}
	if table != "" {
		// Two that make a table at the same time get into each other's way.
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(1)`)
			if err == nil {
				_, err = tx.Exec(ctx, table)
			}
			return err
		})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &tableProcess{pool, lock}, nil
}

func (p *tableProcess) Mutex(_ context.Context, name string) (Locker, error) { return p.lock(p, name) }

func (p *tableProcess) Close() error {
	p.pool.Close()
	return nil
}

// pool returns a pool for one process. It has a connection for each goroutine, which those need that
// keep one while they hold a lock or wait for it.
func (s *Stage) pool(ctx context.Context) (*pgxpool.Pool, error) {
	dsn, err := s.postgres.dsn()
	if err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	c.MaxConns = pgConns
	return pgxpool.NewWithConfig(ctx, c)
}

const pgConns = 64

// Postgres are works where the lock is in PostgreSQL, which writes to its disk.
var Postgres = []Work{
	onPostgres("1/hold=0s", "One client on one lock", 25, 300*time.Millisecond, mutexes(1)),
	onPostgres("64/hold=0s", "64 clients on one lock", 15, time.Second, mutexes(each(64)...)),
	onPostgres("apart/64", "64 goroutines of one client on different locks", 15, 500*time.Millisecond, setting{
		processes: []int{64}, apart: true, seat: seatMutex, size: 1,
	}),
}

func onPostgres(name, title string, turns int, time time.Duration, st setting) Work {
	return Work{
		Name:       "Postgres/" + name,
		Title:      fmt.Sprintf("PostgreSQL: %s", title),
		About:      "One server with defaults, which waits for its disk at each commit.",
		Contenders: []Contender{HoldfastPostgres, RowLock, AdvisoryLock, LeaseRow},
		Columns:    []Figure{Throughput, WaitP50, WaitP99, WaitMax, Jain, PostgresCPU, ClientPerOp, Allocs},
		Turns:      turns,
		Time:       time,
		Enter:      st.enter,
	}
}
