// Package docs compiles what the documents of holdfast show. A block of Go that is not a whole
// file becomes a file of this package: it takes the names in this file for granted, and
// nothing else. The test in the parent folder does that; here is nothing to import.
package docs

//lint:file-ignore U1000 The blocks of the documents use all of this.

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/driver/setnx"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/leader"
)

// What a program has before it comes to locks.
var (
	ctx     context.Context
	rdb     redis.UniversalClient
	locks   *holdfast.Client
	mu      *holdfast.Mutex
	lease   *holdfast.Lease
	db      *sql.DB
	dsn     string
	handler http.Handler
	pool    *pgxpool.Pool
	etcd    *clientv3.Client
	spans   trace.SpanExporter

	a, b, c redis.UniversalClient // three servers that have nothing in common
)

// What a program does under a lock.
func work(context.Context) error { return nil }

// What blocks import, beside what stands above.
var (
	_ = log.Fatal
	_ = slog.Default
	_ = errors.Is
	_ = os.Interrupt
	_ = signal.NotifyContext
	_ = syscall.SIGTERM
	_ sync.Locker
	_ time.Duration
	_ redislock.Lock
	_ redsync.Mutex
	_ = goredis.NewPool
	_ = redisotel.InstrumentTracing
	_ rueidis.Client
	_ = rueidislock.NewLocker
	_ = otel.Tracer
	_ = stdouttrace.New
	_ trace.TracerProvider
	_ driver.Driver
	_ = deadlock.New
	_ = etcddriver.New
	_ = getset.New
	_ = memdriver.New
	_ = pgdriver.New
	_ = zkdriver.New
	_ = redisdriver.New
	_ = redisson.New
	_ = redlock.New
	_ = setnx.New
	_ = httpfence.Handler
	_ = redisfence.Hook
	_ = sqlfence.Open
	_ = leader.New
)
