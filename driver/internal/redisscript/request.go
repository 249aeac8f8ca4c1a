package redisscript

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// Require panics, in the name of a driver, if locks cannot be kept on what is behind rdb.
func Require(name string, rdb redis.UniversalClient) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(name + ": nil client")
	}
	if _, ok := rdb.(*redis.Ring); ok {
		panic(name + ": a redis.Ring cannot keep locks: it moves them when a server fails, and then two can hold one")
	}
}

// Check refuses, in the name of a driver, what no driver can serve. Which kinds of lock
// there are, and what they need, is for the driver to say.
func Check(name string, r *driver.Request) error {
	switch {
	case r.Name == "" || len(r.Name) > driver.MaxName:
		return Refusal(fmt.Errorf("%s: a name of %d bytes", name, len(r.Name)))
	case r.Token == "" || strings.ContainsFunc(r.Token, func(c rune) bool { return c <= ' ' }):
		return Refusal(fmt.Errorf("%s: a token with spaces, or none", name))
	case r.TTL < driver.MinTTL || r.TTL > driver.MaxTTL:
		return Refusal(fmt.Errorf("%s: a TTL of %v", name, r.TTL))
	}
	return nil
}

// Unsupported refuses, in the name of a driver, a kind of lock that it does not have.
func Unsupported(name string, k driver.Kind) error {
	return Refusal(fmt.Errorf("%s: locks of kind %q: %w", name, k, errors.ErrUnsupported))
}

// Millis rounds up, so that the server never ends a lease before the client does.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Node returns the address of the node of a Cluster that has the key, or "".
func Node(rdb redis.UniversalClient, key string) string {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	node, err := cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return node.Options().Addr
}
