package bench

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
)

// postgres is a PostgreSQL that waits for its disk. It is started once a contender wants it.
type postgres struct {
	tb     testing.TB
	server *pgtest.Server
}

// dsn returns how to connect. The error is an [Absence] if there is no PostgreSQL.
func (p *postgres) dsn() (string, error) {
	if p.server != nil {
		return p.server.DSN(), nil
	}
	if !pgtest.Found() {
		return "", Absence("no initdb in PATH")
	}
	server := pgtest.Start(p.tb, "-c", "fsync=on", "-c", "max_connections=600", "-c", "shared_buffers=128MB")
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := pgdriver.Migrate(ctx, conn); err != nil {
		return "", err
	}
	p.server = server
	return server.DSN(), nil
}

// cpu returns the CPU time of the server and of the sessions that it has now, where the system
// tells; 0 if it has not been started.
func (p *postgres) cpu() (total time.Duration) {
	if p.server == nil {
		return 0
	}
	parent := strconv.Itoa(p.server.Pid())
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		stat, _ := os.ReadFile(process + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may be anything
		if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != parent {
			continue
		}
		times, _ := os.ReadFile(process + "/schedstat")
		ns, _, _ := strings.Cut(string(times), " ")
		if n, err := strconv.ParseInt(ns, 10, 64); err == nil {
			total += time.Duration(n)
		}
	}
	return total
}
