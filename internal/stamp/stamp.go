// Package stamp puts a time into tokens. So a store that keeps nothing of a waiter but its token
// and its text nevertheless shows since when it waits, and no heartbeat is longer for that.
package stamp

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// A stamp is base64 of 32 bits of time and 64 random bits. A unit of the time is 2^25 ns, about
// 34 ms, so that it comes round again after four and a half years.
const (
	length = 16
	mark   = '.' // before the stamp; tokens without a time have none
	unit   = 25
	future = uint32(time.Hour >> unit) // by how much another clock may be ahead of ours
)

var coding = base64.RawURLEncoding

// Append appends a stamp with the present time to a token.
func Append(token []byte) []byte {
	var b [length * 3 / 4]byte
	binary.BigEndian.PutUint32(b[:], uint32(time.Now().UnixNano()>>unit))
	_, _ = rand.Read(b[4:]) // never fails
	return coding.AppendEncode(append(token, mark), b[:])
}

// Time returns when a token was made, by the clock of the one that made it. It is zero if the
// token does not tell.
func Time(token string) time.Time {
	at := strings.LastIndexByte(token, mark)
	if at < 0 || len(token)-at-1 != length {
		return time.Time{}
	}
	b, err := coding.DecodeString(token[at+1:])
	if err != nil {
		return time.Time{}
	}
	now := time.Now().UnixNano() >> unit
	ago := uint32(now) - binary.BigEndian.Uint32(b) + future
	return time.Unix(0, (now-int64(ago)+int64(future))<<unit)
}
