package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// Environment variables for what is the same in all calls.
const (
	storeEnv  = "HOLDFAST_STORE"
	prefixEnv = "HOLDFAST_PREFIX"
)

// connectTimeout bounds the first question to a store. Later ones may take longer:
// a store that has answered once is waited for.
const connectTimeout = 5 * time.Second

const defaultStore = "redis://127.0.0.1:6379"

// storesHelp says what all commands have in common.
const storesHelp = `Stores, for --store:
   redis://user:password@host:6379/0   a Redis server; rediss:// with TLS
   unix:///run/redis.sock              a Redis server on this machine
   redis+sentinel://host:26379?master_name=NAME&addr=host2:26379
                                       the master that Sentinels know; a user
                                       and password in front are for the
                                       Sentinels, &username= and &password=
                                       for the master
   redis+cluster://host:6379           a Redis Cluster; rediss+cluster://
   postgres://user:password@host/db    PostgreSQL, with the schema that
                                       pgdriver.Migrate makes; no --prefix
   etcd://host:2379,host2:2379         etcd; etcds:// with TLS
   setnx+redis://host:6379             mutexes of others: SET NX PX, as of
   getset+redis://host:6379            redsync; SETNX and GETSET; RLock of
   redisson+redis://host:6379          Redisson. Any URL of a Redis can come
                                       after the plus. Their keys begin with
                                       nothing, or with --prefix

Everybody on the machine can see a command line. A password is better off in
a file for --password-file, or in the environment: the URL of the store is
that of --store, or else of HOLDFAST_STORE, HOLDFAST_REDIS or REDIS_URL.

For completion in your shell:
   source <(holdfast completion bash)      # or zsh; fish: ... | source`

// address says which store to use, and how to reach it.
type address struct {
	url, passwordFile string
	files             tlsFiles
	prefix            string
}

// storeFlags are the flags of commands that use a store, and of their workers.
func storeFlags() []cli.Flag {
	const category = "Store"
	file := func(name, env, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Sources: variables(env), Local: true, Category: category, TakesFile: true}
	}
	return []cli.Flag{
		&cli.StringFlag{
			Name: "store", Aliases: []string{"redis"}, Value: defaultStore, Usage: "`URL` of the store, see holdfast --help", Local: true, Category: category,
			// The variable that other programs use comes last.
			Sources: variables(storeEnv, "HOLDFAST_REDIS", "REDIS_URL"),
		},
		file("password-file", "HOLDFAST_PASSWORD_FILE", "`FILE` with the password of the store"),
		file("cacert", "HOLDFAST_CACERT", "`FILE` with the certificates to trust, in PEM form"),
		file("cert", "HOLDFAST_CERT", "`FILE` with the certificate of this client"),
		file("key", "HOLDFAST_KEY", "`FILE` with the key of that certificate"),
		&cli.StringFlag{
			Name: "prefix", Usage: "`TEXT` that keys begin with, as in holdfast.WithPrefix (default: \"holdfast\")",
			Sources: variables(prefixEnv), Local: true, Category: category, HideDefault: true,
		},
	}
}

// variables are sources of a flag. One that is empty counts as not set, as Compose files and
// scripts have it that pass on what may be there.
func variables(names ...string) (all cli.ValueSourceChain) {
	for _, name := range names {
		if os.Getenv(name) == "" {
			all.Chain = append(all.Chain, unset{cli.EnvVar(name).(variable)})
		} else {
			all.Chain = append(all.Chain, cli.EnvVar(name))
		}
	}
	return all
}

type variable interface {
	cli.ValueSource
	cli.EnvValueSource
}

// unset is a variable that is only there for the help.
type unset struct{ variable }

// Lookup implements [cli.ValueSource].
func (unset) Lookup() (string, bool) { return "", false }

func addressOf(cmd *cli.Command) *address {
	prefix := cmd.String("prefix")
	if f, _ := formOf(cmd.String("store")); f == nil && !cmd.IsSet("prefix") {
		prefix = "holdfast"
	}
	return &address{
		url: cmd.String("store"), passwordFile: cmd.String("password-file"), prefix: prefix,
		files: tlsFiles{ca: cmd.String("cacert"), cert: cmd.String("cert"), key: cmd.String("key")},
	}
}

// environ passes the address on to a process of ours. In a command line ps would show it
// to everybody.
func (a *address) environ() []string {
	return []string{
		storeEnv + "=" + a.url, prefixEnv + "=" + a.prefix, "HOLDFAST_PASSWORD_FILE=" + a.passwordFile,
		"HOLDFAST_CACERT=" + a.files.ca, "HOLDFAST_CERT=" + a.files.cert, "HOLDFAST_KEY=" + a.files.key,
	}
}

func isPrefix(s string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.New(strings.TrimPrefix(fmt.Sprint(reason), "redisdriver: "))
		}
	}()
	redisdriver.WithPrefix(s)
	return nil
}

// store is a store of locks that has answered.
type store struct {
	driver driver.Driver
	name   string // for people, without a password
	close  func()
	form   *form // of its locks, if it is an old one
	// One of these is not nil.
	redis    redis.UniversalClient
	postgres *pgxpool.Pool
	etcd     *clientv3.Client
}

// open returns the store at the address, once it has answered. Its errors carry an exit
// code.
func (a *address) open(ctx context.Context) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	password, err := a.password()
	if err != nil {
		return nil, usage(err)
	}
	if f, url := formOf(a.url); f != nil {
		return a.openForm(ctx, f, url, password)
	}
	if err := isPrefix(a.prefix); err != nil {
		return nil, usage(fmt.Errorf("--prefix: %w", err))
	}
	switch scheme, _, _ := strings.Cut(a.url, "://"); scheme {
	case "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		s, err := a.openRedis(ctx, password)
		if err == nil {
			s.driver = redisdriver.New(s.redis, redisdriver.WithPrefix(a.prefix))
		}
		return s, err
	case "postgres", "postgresql":
		return a.openPostgres(ctx, password)
	case "etcd", "etcds":
		return a.openEtcd(ctx, password)
	default:
		// Not the whole URL, for its password.
		return nil, usage(errors.New("--store: want a URL that begins with redis://, rediss://, unix://, redis+sentinel://, " +
			"redis+cluster://, postgres:// or etcd://, or with setnx+redis://, getset+redis:// or redisson+redis://"))
	}
}

// password returns what the password file has, or nothing.
func (a *address) password() (string, error) {
	if a.passwordFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(a.passwordFile)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("--password-file: %s is empty", a.passwordFile)
	}
	return password, nil
}

// unavailable is the failure of a question to a store.
func (s *store) unavailable(err error) error {
	if s.postgres != nil {
		return &failure{exitUnavailable, explainPostgres(s.name, err)}
	}
	return &failure{exitUnavailable, explain(s.name, err)}
}

// warnings is the logger given to the library. It writes lines as the command itself does.
func warnings() *slog.Logger { return slog.New(complaints{}) }

type complaints struct{}

// Enabled implements [slog.Handler].
func (complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (complaints) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "holdfast: lock lost" {
		return nil // which the command tells, with what it does about it
	}
	var b strings.Builder
	b.WriteString(r.Message)
	before := " ("
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, "%s%s %v", before, a.Key, a.Value)
		before = ", "
		return true
	})
	if before == ", " {
		b.WriteByte(')')
	}
	say(errors.New(b.String()))
	return nil
}

// WithAttrs implements [slog.Handler]. The library gives all attributes to Handle.
func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements [slog.Handler].
func (c complaints) WithGroup(string) slog.Handler { return c }

// releaseTimeout bounds the last words to a Redis that does not answer: the lease
// ends by itself then, and the command's exit code should not have to wait for it.
const releaseTimeout = 3 * time.Second

// closeLocks returns when everything is gone that waiters which gave up have left in the
// queue, if Redis answers.
func closeLocks(locks *holdfast.Client) {
	closed := make(chan struct{})
	go func() {
		_ = locks.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(releaseTimeout):
	}
}
