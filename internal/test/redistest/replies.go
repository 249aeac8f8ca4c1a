package redistest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Replies returns a client without a server, for fuzzing what reads replies. The values that
// replies has, one after the other, answer the commands. When there are no more, all commands
// fail.
//
// A value is a byte that says what it is, and what belongs to that: see the switch in next.
func Replies(tb testing.TB, replies []byte) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, errNoServer },
		MaxRetries: -1, DialerRetries: 1,
	})
	rdb.AddHook(&script{rest: replies})
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

var errNoServer = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("redistest: there is no server")}

// serverError is an error that a server has answered with.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var serverErrors = []string{
	"ERR unknown command", "NOSCRIPT No matching script", "LOADING", "READONLY", "MOVED 1 127.0.0.1:1", "CROSSSLOT",
	"NOPERM", "WRONGTYPE", "OOM", "ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY", "", ": -",
}

// script is the hook that answers.
type script struct {
	mu   sync.Mutex
	rest []byte
}

func (s *script) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *script) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		any, ok := cmd.(interface{ SetVal(any) })
		if !ok {
			return next(ctx, cmd) // its type says what the reply is
		}
		s.mu.Lock()
		v, ok := s.next(0)
		s.mu.Unlock()
		err, failed := v.(error)
		switch {
		case !ok:
			err = errNoServer
		case !failed:
			any.SetVal(v)
		}
		cmd.SetErr(err)
		return err
	}
}

func (s *script) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := s.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, []redis.Cmder{cmd}) })
	return func(ctx context.Context, cmds []redis.Cmder) (first error) {
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}

// next reads a value, as go-redis would give it.
func (s *script) next(depth int) (v any, ok bool) {
	kind := s.bytes(1)
	if len(kind) == 0 {
		return nil, false
	}
	switch kind[0] % 10 {
	case 0:
		return nil, true
	case 1, 2: // a small number, as most are
		return int64(int8(s.number(1))), true
	case 3:
		return int64(s.number(8)), true
	case 4:
		return string(s.bytes(int(s.number(1)))), true
	case 5:
		return serverError(serverErrors[s.number(1)%uint64(len(serverErrors))]), true
	case 6:
		return math.Float64frombits(s.number(8)), true
	case 7:
		return s.number(1)%2 == 1, true
	case 8: // RESP3
		all := map[any]any{}
		for range s.number(1) % 4 {
			value, ok := s.next(depth + 1)
			if !ok {
				break
			}
			all[string(s.bytes(4))] = value
		}
		return all, true
	}
	list := []any{}
	for n := s.number(1) % 40; n > 0 && depth < 4; n-- {
		value, ok := s.next(depth + 1)
		if !ok {
			break
		}
		list = append(list, value)
	}
	return list, true
}

// number reads a number of so many bytes.
func (s *script) number(size int) uint64 {
	var b [8]byte
	copy(b[:], s.bytes(size))
	return binary.LittleEndian.Uint64(b[:])
}

func (s *script) bytes(n int) []byte {
	n = min(n, len(s.rest))
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}
