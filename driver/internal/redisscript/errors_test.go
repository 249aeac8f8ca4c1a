package redisscript_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// answer is an error that a server sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestErrorsAreSortedByWhatTheyMean(t *testing.T) {
	var _ redis.Error = answer("")
	for _, c := range []struct {
		err                    error
		transient, notExecuted bool
	}{
		{io.EOF, true, false},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, true, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, true},
		{redis.ErrPoolTimeout, true, true},
		{redis.ErrAutoPipelineQueueFull, true, true},
		{redis.ErrClosed, false, true},
		{errors.New("vetoed by a hook"), true, false},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true, false},
		{errors.New("503 from the service of tokens"), true, false},
		{fmt.Errorf("a client of another kind: %w", errors.ErrUnsupported), false, false},
		{fmt.Errorf("0 of 1: %w", driver.ErrNotConfirmed), false, false},
		{redisscript.Refusal(errors.New("a weight of 0")), false, true},
		{answer("LOADING Redis is loading the dataset in memory"), true, true},
		{answer("READONLY You can't write against a read only replica."), true, true},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), true, true},
		{answer("NOAUTH Authentication required."), false, true},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true},
		{answer("ERR Error compiling script (new function): :20: WRONGTYPE Operation against a key holding the wrong kind of value"), false, true},
		{answer("ERR Unknown Redis command called from script script: 0123, on @user_script:5."), false, false},
		{answer("ERR This Redis command is not allowed from scripts"), false, false},
		{answer("NOPERM this user has no permissions to run the 'hset' command"), false, false},
		{answer("NOPERM User a has no permissions to run the 'evalsha' command"), false, true},
		{answer("NOPERM this user has no permissions to access one of the keys used as arguments"), false, true},
		{answer("ERR Protocol error: unauthenticated multibulk length"), false, true},
		{answer("ERR DB index is out of range"), false, true},
		{answer("ERR This instance has cluster support disabled"), false, true},
		{answer("ERR unknown command 'evalsha', with args beginning with: "), false, true},
		{answer("ERR SELECT is not allowed in cluster mode"), false, true},
		{answer("DENIED Redis is running in protected mode because protected mode is enabled"), false, true},
		{answer("ERR something else"), true, false},
		{answer("upstream failure"), true, false},
		{answer("ERR server overloaded"), true, false},
		{answer("FAILOVER in progress"), true, false},
		{answer("UNKILLABLE Sorry the script already executed write commands"), true, false},
		// As it comes from Redis 6.2, which wraps what happens in a script.
		{answer("ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: -READONLY You can't write against a read only replica. "), true, true},
		{answer("ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: Wrong number of args"), true, false},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			err := redisscript.Classify(c.err)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.transient, errors.Is(err, driver.ErrTransient), "transient")
			require.Equal(t, errors.Is(c.err, redis.ErrClosed), errors.Is(err, driver.ErrClosed), "closed")
			require.Equal(t, c.notExecuted, errors.Is(err, driver.ErrNotExecuted), "not executed")
		})
	}
}

// What servers say of a right that is missing, each in its own words. It is a refusal, and says what
// to do. Those of Redis 7.0 and Valkey are also had from servers, see package redisdriver.
func TestMissingRightIsARefusalWithAdvice(t *testing.T) {
	for _, text := range []string{
		"NOPERM User app has no permissions to run the 'evalsha' command",
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",                                                              // 6.2
		"ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: The user executing the script can't run this command or subcommand ", // 6.2
		"ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:5.",
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 0123, on @user_script:5.",
		"ERR The user executing the script can't run this command or subcommand", // from pcall
		"ERR ACL failure in script: User app has no permissions to run the 'mget' command script: 0123, on @user_script:5.",
		"NOPERM ACL failure in script: User app has no permissions to run the 'mget' command script: 0123, on @user_script:5.",
	} {
		err := redisscript.Classify(answer(text))
		require.NotErrorIs(t, err, driver.ErrTransient, text)
		require.ErrorIs(t, err, driver.ErrDenied, text)
		require.ErrorContains(t, err, "grant the Redis user the rights", text)
	}
	for _, other := range []error{answer("ERR something else"), answer("OOM command not allowed"), io.EOF} {
		require.NotContains(t, redisscript.Classify(other).Error(), "grant")
	}
}

// An operator can end these: by the password, not by another key or another server.
func TestWrongPasswordIsADenial(t *testing.T) {
	for _, text := range []string{
		"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled.",
		"ERR invalid password", "ERR AUTH <password> called without any password configured for the default user.",
		"ERR Protocol error: unauthenticated multibulk length",
	} {
		err := redisscript.Classify(answer(text))
		require.ErrorIs(t, err, driver.ErrDenied, text)
		require.NotErrorIs(t, err, driver.ErrTransient, text)
		require.ErrorIs(t, redisscript.Unknown(err), driver.ErrDenied, text)
		require.NotErrorIs(t, redisscript.Unknown(err), driver.ErrNotExecuted, text)
	}
	for _, other := range []error{answer("WRONGTYPE x"), answer("ERR DB index is out of range"), answer("OOM x"), io.EOF, redis.ErrClosed} {
		require.NotErrorIs(t, redisscript.Classify(other), driver.ErrDenied, other)
	}
}

// A command that was never written to a connection was not executed, whatever the error: here
// the client dials in vain, or a hook is against it.
func TestCommandThatWasNotWrittenWasNotExecuted(t *testing.T) {
	call := redisscript.New("try", "return 1").Call("test", 0, "k")
	refused := errors.New("refused by the dialer")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		hook redis.Hook
		want error
	}{
		"no connection": {t.Context(), nil, refused},
		"no time":       {dead, nil, context.Canceled},
		"a veto":        {t.Context(), veto{}, errVeto},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, refused
			}})
			defer rdb.Close()
			if test.hook != nil {
				rdb.AddHook(test.hook)
			}
			_, err := redisscript.Run(test.ctx, rdb, call)
			require.ErrorIs(t, err, test.want)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
		})
	}
	t.Run("written", func(t *testing.T) {
		odd := redisscript.New("try", "return redis.error_reply('ODD')").Call("test", 0, "k")
		_, err := redisscript.Run(t.Context(), redistest.Mini(t).Client(t), odd)
		require.ErrorContains(t, err, "ODD")
		require.NotErrorIs(t, err, driver.ErrNotExecuted)
	})
}

var errVeto = errors.New("vetoed")

// veto is a hook that lets nothing through.
type veto struct{}

func (veto) DialHook(next redis.DialHook) redis.DialHook { return next }

func (veto) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errVeto }
}

func (veto) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server that does not read a long command closes the connection, perhaps a little later. The
// next command must not meet that: it may have been carried out for all that the client knows.
func TestConnectionThatTheServerIsAboutToCloseIsNotUsedAgain(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go closeAfterLongCommand(theirs)
		return ours, nil
	}})
	defer rdb.Close()
	for range 3 {
		_, err := redisscript.Run(t.Context(), rdb, redisscript.New("try", "return 1").Call("test", 0, "k"))
		require.ErrorContains(t, err, "NOAUTH Authentication required.")
		require.ErrorContains(t, err, "set Username and Password")
		require.ErrorIs(t, err, driver.ErrNotExecuted)
	}
}

// closeAfterLongCommand is a server that wants a password. It closes a connection with the
// first command after one that it did not read.
func closeAfterLongCommand(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for unread := false; ; {
		var n, size int
		if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil || unread {
			return
		}
		words := make([]string, n)
		for i := range words {
			if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
				return
			}
			word := make([]byte, size+2)
			if _, err := io.ReadFull(r, word); err != nil {
				return
			}
			words[i] = string(word[:size])
		}
		answer := "-NOAUTH Authentication required.\r\n"
		if unread = words[0] == "evalsha"; unread {
			answer = "-ERR Protocol error: unauthenticated multibulk length\r\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}
