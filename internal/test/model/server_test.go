package model_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Every script runs at the same moment of the server's clock. Instead of the clock going on,
// the times in a record move back, see record.later.
const (
	now     = 1_000_000_000_000 // in ms
	nowUs   = now*1000 + 500
	channel = "wake:" // what wake channels begin with
	secret  = "$"     // of all clients
	key     = "lock"
)

// server is a Redis with one key, as far as our scripts use it. It is as strict as Redis about
// types and forms, and panics if it is told what it does not know. A script that did so has
// failed, even if it did so through pcall.
type server struct {
	record         // what is at the key
	hears   uint8  // the claims whose clients have subscribed, as a set
	news    []news // what was published
	lua     *lua.LState
	scripts map[string]*lua.LFunction
}

type news struct{ client, text string }

func newServer(scripts map[string]string) (*server, error) {
	s := &server{lua: lua.NewState(lua.Options{SkipOpenLibs: true}), scripts: map[string]*lua.LFunction{}}
	for name, open := range map[string]lua.LGFunction{"": lua.OpenBase, "string": lua.OpenString, "table": lua.OpenTable, "math": lua.OpenMath} {
		s.lua.Push(s.lua.NewFunction(open))
		s.lua.Push(lua.LString(name))
		s.lua.Call(1, 0)
	}
	s.lua.SetGlobal("redis", s.lua.SetFuncs(s.lua.NewTable(), map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return s.call(l, true) },
		"pcall": func(l *lua.LState) int { return s.call(l, false) },
		"sha1hex": func(l *lua.LState) int {
			l.Push(lua.LString(hash(l.CheckString(1))))
			return 1
		},
	}))
	err := s.lua.DoString(`setmetatable(_G, { __newindex = function(_, name) error('a global: ' .. name) end })`)
	if err != nil {
		return nil, err
	}
	for name, text := range scripts {
		if s.scripts[name], err = s.lua.LoadString(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, nil
}

// run runs a script on the key.
func (s *server) run(script string, args ...string) (lua.LValue, error) {
	s.news = nil
	keys, argv := s.lua.NewTable(), s.lua.NewTable()
	keys.Append(lua.LString(key))
	for _, arg := range args {
		argv.Append(lua.LString(arg))
	}
	s.lua.G.Global.RawSetString("KEYS", keys)
	s.lua.G.Global.RawSetString("ARGV", argv)
	if err := s.lua.CallByParam(lua.P{Fn: s.scripts[script], NRet: 1, Protect: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", script, err)
	}
	reply := s.lua.Get(-1)
	s.lua.Pop(1)
	return reply, nil
}

// refused is an error that Redis answers with.
type refused string

const wrongType refused = "WRONGTYPE Operation against a key holding the wrong kind of value"

func (s *server) call(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber: // Redis would write a fraction with 17 digits
			if v != lua.LNumber(int64(v)) {
				panic(fmt.Sprintf("%q has the fraction %v", args, v))
			}
			args[i] = strconv.FormatInt(int64(v), 10)
		default:
			panic(fmt.Sprintf("%q has a %s as argument", args, v.Type()))
		}
	}
	switch v := s.do(args).(type) {
	case refused:
		if raise {
			l.RaiseError("%s", string(v))
		}
		reply := l.NewTable()
		reply.RawSetString("err", lua.LString(v))
		l.Push(reply)
	case lua.LValue:
		l.Push(v)
	}
	return 1
}

// do carries out a command. It returns a value of Lua or refused.
func (s *server) do(args []string) any {
	command, args := args[0], args[1:]
	must := func(ok bool) {
		if !ok {
			panic(fmt.Sprintf("the model knows no %s %q", command, args))
		}
	}
	switch command {
	case "TIME", "PUBLISH", "PUBSUB":
	default:
		must(len(args) > 0 && args[0] == key)
	}
	if isText := s.text != ""; strings.HasPrefix(command, "H") && isText {
		return wrongType
	}
	switch command {
	case "TIME":
		must(len(args) == 0)
		return s.list(lua.LString(strconv.Itoa(nowUs/1_000_000)), lua.LString(strconv.Itoa(nowUs%1_000_000)))
	case "EXISTS":
		must(len(args) == 1)
		return flag(s.exists())
	case "MGET":
		must(len(args) == 1)
		if s.text == "" { // also if it is a hash
			return s.list(lua.LFalse)
		}
		return s.list(lua.LString(s.text))
	case "HGET":
		must(len(args) == 2)
		return s.field(args[1])
	case "HMGET":
		must(len(args) > 1)
		values := make([]lua.LValue, len(args)-1)
		for i, name := range args[1:] {
			values[i] = s.field(name)
		}
		return s.list(values...)
	case "SET":
		if len(args) == 3 && args[2] == "KEEPTTL" {
			must(s.text != "" && args[1] != "")
			s.text = args[1]
			return s.ok()
		}
		must(len(args) == 4 && args[2] == "PXAT" && args[1] != "")
		at, err := strconv.ParseInt(args[3], 10, 64)
		must(err == nil)
		if at <= 0 {
			return refused("ERR invalid expire time in 'set' command")
		}
		s.text, s.fields, s.ends = args[1], nil, at
		if at <= now {
			s.text = ""
		}
		return s.ok()
	case "HSET":
		must(len(args) >= 3 && len(args)%2 == 1)
		created := 0
		if s.fields == nil {
			s.fields, s.ends = map[string]string{}, 0
		}
		for i := 1; i < len(args); i += 2 {
			if _, ok := s.fields[args[i]]; !ok {
				created++
			}
			s.fields[args[i]] = args[i+1]
		}
		return lua.LNumber(created)
	case "HDEL":
		must(len(args) >= 2)
		before := len(s.fields)
		for _, name := range args[1:] {
			delete(s.fields, name)
		}
		deleted := before - len(s.fields)
		if len(s.fields) == 0 {
			s.fields = nil
		}
		return lua.LNumber(deleted)
	case "DEL":
		must(len(args) == 1)
		was := s.exists()
		s.text, s.fields = "", nil
		return flag(was)
	case "PEXPIREAT":
		must(len(args) == 2)
		at, err := strconv.ParseInt(args[1], 10, 64)
		must(err == nil)
		was := s.exists()
		if s.ends = at; at <= now {
			s.text, s.fields = "", nil
		}
		return flag(was)
	case "PUBLISH":
		must(len(args) == 2)
		client, ok := strings.CutPrefix(args[0], channel)
		must(ok)
		end := strings.LastIndexByte(args[1], '\n')
		must(end > 0)
		text, seal := args[1][:end], args[1][end+1:]
		must(seal == hash(secret+text+secret) || seal == hash(text)) // of a client that has none
		s.news = append(s.news, news{client, text})
		return lua.LNumber(s.listeners(client))
	case "PUBSUB":
		must(len(args) == 2 && args[0] == "NUMSUB")
		client, ok := strings.CutPrefix(args[1], channel)
		must(ok)
		return s.list(lua.LString(args[1]), lua.LNumber(s.listeners(client)))
	}
	must(false)
	return nil
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *server) listeners(client string) int {
	i := strings.Index(letters, client)
	if len(client) != 1 || i < 0 {
		return 0
	}
	return int(s.hears >> i & 1)
}

func (s *server) field(name string) lua.LValue {
	if v, ok := s.fields[name]; ok {
		return lua.LString(v)
	}
	return lua.LFalse
}

func (s *server) ok() lua.LValue {
	t := s.lua.NewTable()
	t.RawSetString("ok", lua.LString("OK"))
	return t
}

func (s *server) list(values ...lua.LValue) lua.LValue {
	t := s.lua.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(v)
	}
	return t
}

func flag(b bool) lua.LNumber {
	if b {
		return 1
	}
	return 0
}

// natural reads a number as scripts should write them, such as no 1e+12.
func natural(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		panic(fmt.Sprintf("%q is no natural number", text))
	}
	return n
}
