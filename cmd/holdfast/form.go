package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/setnx"
)

// form is a form of locks that other programs use, too.
type form struct {
	text   string // for people
	open   func(rdb redis.UniversalClient, prefix string) driver.Driver
	beside string // what our keys beside those of the locks begin with
	waits  string // how a waiter finds out that the lock is free
	rights []string
}

// forms are what stands before a plus in the URL of a Redis.
var forms = map[string]*form{
	"setnx": {
		"SET NX PX", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return setnx.New(rdb, setnx.WithPrefix(prefix))
		},
		"holdfast:settled:", "asks every 50 to 150 ms", strings.Fields("eval evalsha exists set pttl get pexpire del"),
	},
	"getset": {
		"SETNX and GETSET", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return getset.New(rdb, getset.WithPrefix(prefix))
		},
		"holdfast:", "asks every 50 to 150 ms", strings.Fields("eval evalsha exists time get set pexpire del"),
	},
	"redisson": {
		"RLock of Redisson", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return redisson.New(rdb, redisson.WithPrefix(prefix))
		},
		"holdfast:redisson:", "is told, and races with the others", strings.Fields("eval evalsha zscore exists hset pexpire pttl hexists hlen hkeys hgetall zrange hdel time zremrangebyscore zadd"),
	},
}

// formOf returns the form that a URL of a store begins with, and the rest, or nil.
func formOf(url string) (*form, string) {
	name, rest, _ := strings.Cut(url, "+")
	return forms[name], rest
}

// openForm connects to a Redis whose locks have that form.
func (a *address) openForm(ctx context.Context, f *form, url, password string) (*store, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "redis", "rediss", "unix":
	default:
		return nil, usage(errors.New("--store: only the URL of a Redis can follow setnx+, getset+ or redisson+"))
	}
	plain := *a
	plain.url = url
	s, err := plain.openRedis(ctx, password)
	if err != nil {
		return nil, err
	}
	s.form, s.driver = f, f.open(s.redis, a.prefix)
	s.name += ", locks by " + f.text
	return s, nil
}

// examine tries the rights that locks of this form need, and says what the form lacks.
func (f *form) examine(ctx context.Context, rdb redis.UniversalClient, prefix string) []finding {
	findings := []finding{{
		Check: "form", Level: warn, Advice: "when all programs can be changed, use the locks of holdfast: see docs/migration.md",
		Text: fmt.Sprintf("%s: no fences, with which alone a late write can be refused; no queue: a waiter %s", f.text, f.waits),
	}}
	key := prefix + "holdfast-doctor-" + rand.Text()[:8]
	missing := false
	for _, of := range []struct{ key, pattern string }{{key, prefix + "*"}, {f.beside + "{" + key + "}", f.beside + "*"}} {
		if err := rdb.Do(ctx, "eval", "return 1", 1, of.key).Err(); redis.HasErrorPrefix(err, "NOPERM") {
			missing = true
			name := "+eval"
			if strings.Contains(err.Error(), " key") {
				name = "~" + of.pattern
			}
			findings = append(findings, finding{Check: "rights", Level: fail, Text: name + " is missing: locks do not work", Advice: "ACL SETUSER NAME " + name})
		}
	}
	more := []right{
		{"+get", []any{"get", key}, false},
		{"+hexists", []any{"hexists", key, "f"}, false},
		{"+hlen", []any{"hlen", key}, false},
		{"+hkeys", []any{"hkeys", key}, false},
		{"+zadd", []any{"zadd", key, 0, "m"}, false},
		{"+zrange", []any{"zrange", key, 0, -1}, false},
		{"+zscore", []any{"zscore", key, "m"}, false},
		{"+zremrangebyscore", []any{"zremrangebyscore", key, 0, 0}, false},
	}
	for _, r := range append(more, rights(key, key)...) { // the last but the messages removes the key
		if !slices.Contains(f.rights, strings.TrimPrefix(r.name, "+")) {
			continue
		}
		if err := rdb.Do(ctx, r.args...).Err(); redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), " command") {
			missing = true
			findings = append(findings, finding{Check: "rights", Level: fail, Text: r.name + " is missing: locks do not work", Advice: "ACL SETUSER NAME " + r.name})
		}
	}
	if err := rdb.Do(ctx, "scan", 0, "count", 1).Err(); redis.HasErrorPrefix(err, "NOPERM") {
		findings = append(findings, finding{Check: "rights", Level: warn, Text: "+scan is missing: only holdfast ls needs it", Advice: "ACL SETUSER NAME +scan"})
	}
	if !missing {
		findings = append(findings, finding{Check: "rights", Level: fine, Text: fmt.Sprintf("all %d that locks need, on keys %s* and %s*", len(f.rights), prefix, f.beside)})
	}
	return findings
}
