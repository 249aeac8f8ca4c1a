package redisdriver_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Seeds of replies, see redistest.Replies: arrays of numbers, as the scripts give them, and
// what stands in their way.
func seedReplies(f *testing.F) {
	f.Add([]byte{9, 4, 1, 3, 1, 100, 1, 0, 1, 1})                            // granted
	f.Add([]byte{9, 6, 1, 2, 1, 100, 1, 0, 1, 1, 1, 1, 4, 3, 't', 'a', 'g'}) // queued
	f.Add([]byte{9, 3, 1, 3, 1, 100, 1, 1, 9, 2, 1, 0, 1, 1, 9, 1, 1, 0})    // there is more
	f.Add([]byte{9, 1, 0, 9, 1, 0, 9, 2, 9, 1, 1, 0})                        // to be asked for again
	f.Add([]byte{9, 1, 4, 1, '-'})                                           // a text alone
	f.Add([]byte{9, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})            // too many numbers
	f.Add([]byte{9, 2, 6, 1, 2, 3, 4, 5, 6, 7, 8, 7, 1, 8, 2, 0, 'a', 'b', 'c', 'd', 0})
	f.Add([]byte{5, 1, 5, 1, 9, 1, 5, 4, 5, 9, 5, 11})
	for _, state := range [][]byte{ // for Inspect: free, thin, fat, and with a queue
		text("7"), text("7 1 t 9 9 1 - 7 1 1 c text"),
		slices.Concat([]byte{0, 9, 2}, text("h:1"), text("t 9 9 1 - 7 1 1 c text")),
		slices.Concat([]byte{0, 9, 4}, text("w:1"), text("t 1 1 9 1 9 1 c =% text"), text("limit"), text("x")),
	} {
		f.Add(append([]byte{9, 3, 1, 1}, append(state, 9, 0)...))
	}
}

// text is a text among replies.
func text(s string) []byte { return append([]byte{4, byte(len(s))}, s...) }

// Whatever a server answers, a call returns, and no error comes with a grant.
func FuzzReplies(f *testing.F) {
	seedReplies(f)
	f.Fuzz(func(t *testing.T, replies []byte) {
		ctx := t.Context()
		for _, call := range []func(*redisdriver.Driver, driver.Lease){
			func(d *redisdriver.Driver, l driver.Lease) {
				for _, wait := range []bool{false, true} {
					r := &driver.Request{Kind: l.Kind, Name: l.Name, Token: l.Token, Ask: 1, TTL: l.TTL, Weight: 1, Limit: 2, Wait: wait}
					g, err := d.Acquire(ctx, r)
					if err != nil {
						require.Zero(t, g.Status)
					} else if g.Status == driver.Granted {
						require.EqualValues(t, 1, g.Ask)
					}
				}
			},
			func(d *redisdriver.Driver, l driver.Lease) {
				require.Len(t, d.Renew(ctx, slices.Repeat([]driver.Lease{l}, 3)), 3)
			},
			func(d *redisdriver.Driver, l driver.Lease) { l.Unsettled = true; _ = d.Release(ctx, l) },
			func(d *redisdriver.Driver, l driver.Lease) { _ = d.ForceRelease(ctx, l.Kind, l.Name) },
			func(d *redisdriver.Driver, l driver.Lease) { _, _ = d.RaiseFence(ctx, l, 1, 1) },
			func(d *redisdriver.Driver, l driver.Lease) { _ = d.Downgrade(ctx, l, 1) },
			func(d *redisdriver.Driver, l driver.Lease) { _ = d.Resize(ctx, l.Name, l.Token, 2) },
			func(d *redisdriver.Driver, l driver.Lease) {
				g, err := d.Attach(ctx, l, &driver.Request{Kind: l.Kind, Name: l.Name, Token: "new", Ask: 1, TTL: l.TTL})
				require.Equal(t, err == nil, g.Status == driver.Granted)
			},
			func(d *redisdriver.Driver, l driver.Lease) {
				info, _ := d.Inspect(ctx, l.Kind, l.Name)
				require.Equal(t, l.Name, info.Name)
				for _, h := range info.Holders {
					require.GreaterOrEqual(t, h.TimeLeft, time.Duration(0))
				}
			},
		} {
			for _, kind := range []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore} {
				d := redisdriver.New(redistest.Replies(t, replies))
				call(d, driver.Lease{Kind: kind, Name: "x", Token: "t", TTL: time.Second})
				require.NoError(t, d.Close())
			}
		}
	})
}

// Any text may come in on a channel. Only a token that a line names hears of it, and a line
// that is not complete says nothing.
func FuzzNews(f *testing.F) {
	for _, news := range []string{
		"granted t 1 7 1", "granted t 1 7 1 tag", "granted u 1 7 1\nask t\nlost t\nwanted t", "ping", "",
		"granted t -1 7 1", "granted t 18446744073709551616 7 1", "granted t 1 7", "granted  1 7 1", "granted t 1 7 1 a b",
		"ask", "ask t ", "ask\tt", "lost t\r", "granted t 1 7 1\x00", "\n\n", "granted t 1 7 1 \xff", "wanted t\nwanted t",
	} {
		f.Add(news)
	}
	f.Fuzz(func(t *testing.T, news string) {
		d := redisdriver.New(redistest.Replies(t, []byte{9, 4, 1, 3, 1, 100, 1, 0, 1, 1}))
		defer func() { require.NoError(t, d.Close()) }()
		var heard []driver.Grant
		r := &driver.Request{Kind: driver.Mutex, Name: "x", Token: "t", Ask: 1, TTL: time.Second}
		r.Wake = func(g driver.Grant) { heard = append(heard, g) }
		_, err := d.Acquire(t.Context(), r) // from now on it hears of "t"
		require.NoError(t, err)
		d.Dispatch(news)
		require.Empty(t, heard, "without a seal")
		d.Dispatch(d.Seal(news))

		var said []driver.Grant
		for line := range strings.SplitSeq(news, "\n") {
			var g driver.Grant
			word := strings.Split(line, " ")
			switch {
			case word[0] == "ask" && len(word) > 1 && len(word) <= 3 && word[1] == "t":
				g.Status, g.HolderTag = driver.Queued, tagged(word[2:])
			case line == "lost t":
				g.Status = driver.Lost
			case word[0] == "granted" && (len(word) == 5 || len(word) == 6):
				var bad [3]error
				g.Ask, bad[0] = strconv.ParseUint(word[2], 10, 64)
				g.Fence, bad[1] = strconv.ParseInt(word[3], 10, 64)
				g.Fences, bad[2] = strconv.ParseInt(word[4], 10, 64)
				if word[1] != "t" || errors.Join(bad[:]...) != nil {
					continue
				}
				g.Status, g.HolderTag = driver.Granted, tagged(word[5:])
			default:
				continue
			}
			said = append(said, g)
		}
		for _, g := range heard {
			require.Contains(t, said, g, "%q", news)
		}
	})
}

// tagged is the tag that ends a line, if it is one.
func tagged(word []string) string {
	if len(word) == 1 && len(word[0]) <= driver.MaxHolderTag && word[0] != "-" &&
		!strings.ContainsFunc(word[0], func(c rune) bool { return c <= ' ' || c > '~' }) {
		return word[0]
	}
	return ""
}
