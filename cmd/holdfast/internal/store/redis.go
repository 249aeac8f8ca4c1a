package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
)

// openRedis connects to a Redis, a Sentinel group or a Cluster. The store has no driver yet.
func (a *Address) openRedis(ctx context.Context, password string) (*Store, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		// The error quotes the URL, and with it the password.
		return nil, exit.WrongUsage(fmt.Errorf("--store is not a URL; want %s, for example", Default))
	}
	// It logs each failed attempt. The error says it once.
	redis.SetLogger(&silence{})
	scheme, form, _ := strings.Cut(u.Scheme, "+")
	if form == "" && u.Query().Has("master_name") {
		form = "sentinel"
	}
	plain := *u
	plain.Scheme = scheme
	wrong := func(err error) (*Store, error) { return nil, exit.WrongUsage(fmt.Errorf("--store: %w", err)) }
	var s *Store
	switch form {
	case "sentinel":
		o, err := redis.ParseFailoverURL(plain.String())
		if err == nil && o.MasterName == "" {
			err = errors.New("want the name of the master that the Sentinels know, as in redis+sentinel://host:26379?master_name=mymaster")
		}
		if err == nil {
			o.TLSConfig, err = a.Files.Load(o.TLSConfig)
		}
		if err != nil {
			return wrong(err)
		}
		if password != "" {
			o.Password = password
		}
		o.ContextTimeoutEnabled = true // so that --timeout and Ctrl-C end a command that Redis does not answer
		s = &Store{Redis: redis.NewFailoverClient(o), Name: fmt.Sprintf("Redis master %q of the Sentinel at %s", o.MasterName, o.SentinelAddrs[0])}
	case "cluster":
		o, err := redis.ParseClusterURL(plain.String())
		if err == nil {
			o.TLSConfig, err = a.Files.Load(o.TLSConfig)
		}
		if err != nil {
			return wrong(err)
		}
		if password != "" {
			o.Password = password
		}
		o.ContextTimeoutEnabled = true
		s = &Store{Redis: redis.NewClusterClient(o), Name: "Redis Cluster at " + o.Addrs[0]}
	default:
		o, err := redis.ParseURL(plain.String())
		if err == nil {
			o.TLSConfig, err = a.Files.Load(o.TLSConfig)
		}
		if err != nil {
			return wrong(err)
		}
		if password != "" {
			o.Password = password
		}
		o.ContextTimeoutEnabled = true
		s = &Store{Redis: redis.NewClient(o), Name: "Redis at " + o.Addr}
	}
	s.Close = func() { _ = s.Redis.Close() }
	s.Replica, err = reach(ctx, s.Redis, form)
	if err != nil {
		s.Close()
		if scheme == "rediss" && errors.Is(err, context.DeadlineExceeded) {
			// A Redis without TLS waits for the rest of what it takes for a command.
			err = fmt.Errorf("%w; perhaps it does not speak TLS there: redis:// is without", err)
		}
		return nil, s.Unavailable(err)
	}
	return s, nil
}

// reach asks a server who it is. That needs no right, unlike PING. The URL may be wrong in a
// way that the connection itself does not survive, whatever the question. A replica is one for good
// only if the URL names that server: the master of a Sentinel group may become one.
func reach(ctx context.Context, rdb redis.UniversalClient, form string) (replica bool, err error) {
	reply, err := rdb.Do(ctx, "HELLO", "3").Result()
	if err != nil {
		text := err.Error()
		_, answered := errors.AsType[redis.Error](err)
		switch {
		case strings.Contains(text, "SELECT is not allowed in cluster mode"):
			return false, errCluster
		case strings.Contains(text, "cluster support disabled"):
			return false, errNoCluster
		case form == "sentinel" && errors.Is(err, redis.Nil):
			return false, errNoMaster
		case form == "sentinel" && strings.Contains(text, "unknown command"):
			return false, errNoSentinel
		case !answered, strings.Contains(text, "DB index"), redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
			return false, err
		}
		return false, nil // it does not know the question
	}
	who, _ := reply.(map[any]any)
	switch mode := who["mode"]; {
	case mode == "sentinel" && form == "":
		return false, errSentinel
	case mode == "cluster" && form == "":
		return false, errCluster
	}
	return form == "" && who["role"] == "replica", nil
}

// wrongForm is a URL of another kind of Redis than there is at its address.
type wrongForm string

func (w wrongForm) Error() string { return string(w) }

const (
	errSentinel   = wrongForm("this is a Sentinel, which keeps no locks: use redis+sentinel://host:26379?master_name=NAME")
	errCluster    = wrongForm("this is a node of a Cluster: use redis+cluster://host:6379")
	errNoCluster  = wrongForm("this is a Redis without Cluster: use redis://host:6379")
	errNoSentinel = wrongForm("this is no Sentinel: use redis://host:6379, or the port of the Sentinel")
	errReplica    = wrongForm("this is a replica, which takes no writes: use the master, or redis+sentinel://host:26379?master_name=NAME")
	errNoMaster   = wrongForm("the Sentinel knows no master of that name: check master_name")
)

// explain says of an error what was asked and what to do about it, in words of the
// command line.
func explain(name string, err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "holdfast: "), "redisdriver: ")
	var dialled *net.OpError
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case strings.Contains(text, "DB index"):
		return fmt.Errorf("%s has no database of that number: check the end of the URL (%s)", name, text)
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return fmt.Errorf("%s wants a password: write it in the URL, as in redis://user:password@host, or in a file for --password-file (NOAUTH)", name)
	case redis.HasErrorPrefix(err, "WRONGPASS"):
		return fmt.Errorf("%s refuses the user or the password: check the URL and --password-file (WRONGPASS)", name)
	case strings.Contains(text, "NOPERM"):
		return fmt.Errorf("%s: the user lacks a right; holdfast doctor says which: %s", name, quoted(text, "NOPERM"))
	case strings.Contains(text, "can't run this command"): // what Redis 7 says from within a script
		return fmt.Errorf("%s: the user lacks a right; holdfast doctor says which: NOPERM in a script", name)
	case strings.Contains(text, "WRONGTYPE"):
		return fmt.Errorf("%s: the key of the lock holds something that is no lock (WRONGTYPE)", name)
	case strings.Contains(text, "READONLY"):
		return fmt.Errorf("%s: %w", name, errReplica)
	case strings.Contains(text, "MOVED "):
		return fmt.Errorf("%s: %w (%s)", name, errCluster, quoted(text, "MOVED"))
	case errors.As(err, &certificate):
		return fmt.Errorf("%s: its certificate is not trusted: give its authority with --cacert: %w", name, err)
	case errors.As(err, &header):
		return fmt.Errorf("%s does not speak TLS there: use redis://, or the port for TLS", name)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s does not answer: %s", name, text)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s closes the connection; perhaps one side wants TLS and the other does not: rediss:// is with TLS, redis:// without; or a proxy is in between that does not know HELLO, such as twemproxy, behind which holdfast does not work", name)
	case errors.As(err, &dialled) && dialled.Op == "dial":
		return fmt.Errorf("no %s: %s", name, text)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// quoted returns what a server said, without the advice that the library has for programs.
func quoted(text, from string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, " (")
	return from + text
}

// TLSFiles are the files of a connection with TLS. Those without a name are not used.
type TLSFiles struct{ CA, Cert, Key string }

// Load returns what of TLS the URL says, with the files. It returns nil without TLS.
func (f TLSFiles) Load(c *tls.Config) (*tls.Config, error) {
	if f == (TLSFiles{}) {
		return c, nil
	}
	if c == nil {
		return nil, errors.New("--cacert, --cert and --key need a URL with TLS, such as rediss://host:6379")
	}
	c = c.Clone()
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: no certificate in %s", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert and --key go together")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

type silence struct{}

func (*silence) Printf(context.Context, string, ...any) {}
