package redisscript

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// storeError adds to an error what is known of it: the sentinels it matches.
type storeError struct {
	err                            error
	transient, denied, notExecuted bool
	advice                         string // what to do about it, empty for nothing in particular
}

func (e *storeError) Error() string {
	if e.advice == "" {
		return e.err.Error()
	}
	return e.err.Error() + " (" + e.advice + ")"
}
func (e *storeError) Unwrap() error { return e.err }

// ErrorType is what the face tells of an error that matches no sentinel.
func (e *storeError) ErrorType() string {
	if strings.Contains(e.err.Error(), "WRONGTYPE ") {
		return "wrong_type"
	}
	return "store"
}

func (e *storeError) Is(target error) bool {
	return target == driver.ErrTransient && e.transient || target == driver.ErrDenied && e.denied ||
		target == driver.ErrNotExecuted && e.notExecuted || target == driver.ErrClosed && errors.Is(e.err, redis.ErrClosed)
}

// Refusal is an error that the driver itself returns, having sent nothing.
func Refusal(err error) error { return &storeError{err: err, notExecuted: true} }

// Unsent classifies the end of a context before the command was sent.
func Unsent(err error) error {
	return &storeError{err: err, transient: true, notExecuted: true}
}

// Unknown takes from an error the certainty that nothing was done.
func Unknown(err error) error {
	var e *storeError
	if errors.As(err, &e) {
		unsure := *e
		unsure.notExecuted = false
		return &unsure
	}
	return err
}

// Unwritten adds to an error the certainty that nothing was done.
func Unwritten(err error) error {
	var e *storeError
	if !errors.As(err, &e) {
		return Refusal(err)
	}
	sure := *e
	sure.notExecuted = true
	return &sure
}

// Answers of a server that cannot serve now. It says so before a script has written anything:
// before it starts, or at its first write. Of other answers that may pass nobody knows when they come.
var passing = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY",
	"NOREPLICAS", "MISCONF", "OOM", "NOSCRIPT", "ERR max number of clients reached",
}

// Answers of a server that will not, again before anything was written. Some are to what a
// client sends first on a connection.
var refusing = []string{
	"NOAUTH", "WRONGPASS", "CROSSSLOT", "WRONGTYPE", "ERR AUTH", "ERR invalid password", "ERR DB index is out of range",
	"ERR This instance has cluster support disabled", "ERR unknown command", "ERR SELECT is not allowed in cluster mode", "DENIED",
	"ERR value is not an integer or out of range", "ERR increment or decrement would overflow", // no counter of fences
}

// Answers about the password, or that the server has none and is in protected mode.
var denying = []string{"NOAUTH", "WRONGPASS", "ERR AUTH", "ERR invalid password", "DENIED"}

// barred reports whether a user may not run scripts, or not on this key. Any other NOPERM
// can come in the middle of a script.
func barred(err error) bool {
	if !hasPrefix(err, []string{"NOPERM"}) {
		return false
	}
	text := err.Error()
	return slices.ContainsFunc([]string{"'evalsha' command", "'eval' command", "access a key", "access one of the keys"},
		func(why string) bool { return strings.Contains(text, why) })
}

// lacks reports whether a user has no right to something that a script does. Redis up to 7.0 says
// it in the first words, Redis 7.2 and Valkey in the second.
func lacks(err error) bool {
	text := err.Error()
	return hasPrefix(err, []string{"NOPERM"}) || strings.Contains(text, "The user executing the script ") ||
		strings.Contains(text, "ACL failure in script")
}

// forbidden reports whether a server lets no script use a command: there is none, or not for
// scripts. It may say so in the middle of one.
func forbidden(err error) bool {
	return strings.Contains(err.Error(), "Unknown Redis command called from") ||
		strings.Contains(err.Error(), "Redis command is not allowed from script")
}

// AboutNews reports whether what a server refuses is a subscription, or something within a script,
// as that a ping may publish.
func AboutNews(err error) bool {
	text := strings.ToLower(err.Error())
	return forbidden(err) || slices.ContainsFunc([]string{"publish", "subscribe", "channel", "executing the script", "acl failure in script"},
		func(what string) bool { return strings.Contains(text, what) })
}

// rights is the advice of lacks.
const rights = "grant the Redis user the rights that the documentation of package holdfast lists"

// Answers about the server or the user, whatever a command is for.
var general = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "NOREPLICAS", "MISCONF", "OOM", "NOSCRIPT",
	"ERR max number of clients reached", "NOAUTH", "WRONGPASS", "ERR AUTH", "ERR invalid password",
	"ERR DB index is out of range", "ERR unknown command", "ERR This instance has cluster support disabled", unread,
}

// ErrNoConnection says that a call for many was given up before it had a connection.
var ErrNoConnection = errors.New("no connection within a second")

// Separable reports whether a call for many may have failed because of a few of them, so that it
// is worth a try to make a call for each.
//
// That is so of rights on keys, of slots, of errors in a script, and of a proxy or hook that
// wants no such calls. It is not so of a server that loads, is read-only, is full or hangs, nor of
// one that cannot be reached. There a call for each would fail, too, and be 64 times the load
// while the server can bear it least.
func Separable(err error) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	var dial *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &reply):
		return !hasPrefix(err, general) && !(hasPrefix(err, []string{"NOPERM"}) && strings.Contains(err.Error(), "'eval"))
	case errors.Is(err, ErrNoConnection), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &network) && network.Timeout():
		return false
	}
	return true // the connection was closed, or a hook is against it
}

// Answered reports whether an error is what a server has answered.
func Answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// unauthenticated is NOAUTH in other words. Of a client that has not given a password yet, a
// server reads no long command, as those with scripts are.
type unauthenticated struct{ error }

func (unauthenticated) Error() string   { return "NOAUTH Authentication required." }
func (unauthenticated) RedisError()     {}
func (e unauthenticated) Unwrap() error { return e.error }

// plainly returns an error of a server in plain words: it is asked again with a short
// command. That also finds the connection that the server has closed, which the next
// command would meet. A command that meets it may have been carried out for all we know.
func plainly(ctx context.Context, rdb processor, err error) error {
	if !redis.HasErrorPrefix(err, unread) {
		return err
	}
	if short := rdb.Process(ctx, redis.NewStatusCmd(ctx, "ping")); short != nil && redis.HasErrorPrefix(short, "NOAUTH") {
		return short
	}
	return unauthenticated{err}
}

// unread is how a server refuses to read a long command.
const unread = "Protocol error: unauthenticated"

// Answers that do not pass by themselves, and what to do about them.
var advices = []struct{ answer, advice string }{
	{"NOAUTH", "set Username and Password of the Redis client"},
	{"WRONGPASS", "check Username and Password of the Redis client"},
	{"WRONGTYPE", "another program keeps something else there: use another prefix"},
	{"ERR This instance has cluster support disabled", "this is no Redis Cluster: use redis.NewClient"},
	{"ERR unknown command", "this is no Redis that runs scripts; for a Sentinel use redis.NewFailoverClient"},
}

// misdirected says of an answer that sends the client elsewhere that it cannot go there: it
// is made for one server, and this one is part of a Cluster. A Cluster client follows by
// itself, and sees such an answer only while slots move.
func misdirected(err error) error {
	return &storeError{err: err, notExecuted: true, advice: "this is a Redis Cluster: use redis.NewClusterClient"}
}

// hasPrefix reports whether a server's answer begins with one of the prefixes. Before
// version 7 an error in a script arrived wrapped: "ERR Error running script (call to
// f_…): @user_script:5: @user_script: 5: -READONLY You can't write …".
func hasPrefix(err error, prefixes []string) bool {
	text := err.Error()
	if strings.HasPrefix(text, "ERR Error running script") {
		text = text[strings.LastIndex(text, ": -")+len(": -"):]
	}
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) || redis.HasErrorPrefix(err, p) {
			return true
		}
	}
	return false
}

// Classify says of an error of go-redis whether it may pass and whether the command has surely had
// no effect. What is not known to last may pass, see package trouble: also what the program itself
// says before the server does, by its dialer, limiter, hook or provider of credentials.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	if redis.HasErrorPrefix(err, unread) { // in a pipeline
		err = unauthenticated{err}
	}
	e := &storeError{err: err}
	var reply redis.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &reply):
		e.denied = hasPrefix(err, denying)
		if lacks(err) {
			e.denied, e.advice = true, rights
		}
		refused := hasPrefix(err, refusing) || strings.Contains(err.Error(), "WRONGTYPE Operation") // as of miniredis
		e.transient = !refused && !e.denied && !forbidden(err)
		e.notExecuted = refused || hasPrefix(err, passing) || barred(err)
		for _, a := range advices {
			if hasPrefix(err, []string{a.answer}) {
				e.advice = a.advice
			}
		}
	case errors.Is(err, redis.ErrClosed):
		e.notExecuted = true
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, redis.ErrAutoPipelineTimeout), errors.Is(err, redis.ErrAutoPipelineQueueFull),
		errors.As(err, &dial) && dial.Op == "dial":
		e.transient, e.notExecuted = true, true
	default:
		e.transient = trouble.Passes(err)
	}
	return e
}
