package store

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// Environment variables for what is the same in all calls.
const (
	URLEnv    = "HOLDFAST_STORE"
	PrefixEnv = "HOLDFAST_PREFIX"
)

// ConnectTimeout bounds the first question to a store. Later ones may take longer:
// a store that has answered once is waited for.
const ConnectTimeout = 5 * time.Second

// Default is the store of a command line that names none, and DefaultPrefix its prefix.
const (
	Default       = "redis://127.0.0.1:6379"
	DefaultPrefix = "holdfast"
)

// Help says what all commands have in common.
const Help = `Stores, for --store:
   redis://user:password@host:6379/0   a Redis server; rediss:// with TLS
   unix:///run/redis.sock              a Redis server on this machine
   redis+sentinel://host:26379?master_name=NAME&addr=host2:26379
                                       the master that Sentinels know; a user
                                       and password in front are for the
                                       Sentinels, &username= and &password=
                                       for the master
   redis+cluster://host:6379           a Redis Cluster; rediss+cluster://
   postgres://user:password@host/db    PostgreSQL, with the schema that
                                       holdfast migrate makes; no --prefix
   etcd://host:2379,host2:2379         etcd; etcds:// with TLS
   zk://user:password@host:2181,host2:2181
                                       ZooKeeper; zks:// with TLS
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

// Address says which store to use, and how to reach it.
type Address struct {
	URL, Prefix, PasswordFile string
	Files                     TLSFiles
}

// Flags are the flags of commands that use a store, and of their workers.
func Flags() []cli.Flag {
	const category = "Store"
	file := func(name, env, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Sources: variables(env), Local: true, Category: category, TakesFile: true}
	}
	return []cli.Flag{
		&cli.StringFlag{
			Name: "store", Aliases: []string{"redis"}, Value: Default, Usage: "`URL` of the store, see holdfast --help", Local: true, Category: category,
			// The variable that other programs use comes last.
			Sources: variables(URLEnv, "HOLDFAST_REDIS", "REDIS_URL"),
		},
		file("password-file", "HOLDFAST_PASSWORD_FILE", "`FILE` with the password of the store"),
		file("cacert", "HOLDFAST_CACERT", "`FILE` with the certificates to trust, in PEM form"),
		file("cert", "HOLDFAST_CERT", "`FILE` with the certificate of this client"),
		file("key", "HOLDFAST_KEY", "`FILE` with the key of that certificate"),
		&cli.StringFlag{
			Name: "prefix", Usage: "`TEXT` that keys begin with, as in holdfast.WithPrefix (default: \"holdfast\")",
			Sources: variables(PrefixEnv), Local: true, Category: category, HideDefault: true,
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

// AddressOf returns the address that the flags of cmd name.
func AddressOf(cmd *cli.Command) *Address {
	prefix := cmd.String("prefix")
	if f, _ := formOf(cmd.String("store")); f == nil && !cmd.IsSet("prefix") {
		prefix = DefaultPrefix
	}
	return &Address{
		URL: cmd.String("store"), PasswordFile: cmd.String("password-file"), Prefix: prefix,
		Files: TLSFiles{CA: cmd.String("cacert"), Cert: cmd.String("cert"), Key: cmd.String("key")},
	}
}

// Password returns what the password file has, or nothing.
func (a *Address) Password() (string, error) {
	if a.PasswordFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("--password-file: %s is empty", a.PasswordFile)
	}
	return password, nil
}
