package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// frame is one value of RESP2 or RESP3, a request or a reply, as it came.
type frame struct {
	raw   []byte
	kind  byte     // '+', '$', '*', '>' ...
	words []string // the elements of an aggregate; "" for one that is no string
}

func readFrame(r *bufio.Reader) (frame, error) {
	var f frame
	kind, _, words, err := f.value(r)
	f.kind, f.words = kind, words
	return f, err
}

// FrameLen is the length of the first value of RESP in b, 0 if it is not complete.
func FrameLen(b []byte) int {
	f, err := readFrame(bufio.NewReaderSize(bytes.NewReader(b), 64))
	if err != nil {
		return 0
	}
	return len(f.raw)
}

// value reads one value, of which it returns the text or the elements, and keeps
// all its bytes. The streamed types of RESP3 are missing: no server sends them.
func (f *frame) value(r *bufio.Reader) (kind byte, text string, words []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, "", nil, err
	}
	f.raw = append(f.raw, line...)
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return 0, "", nil, fmt.Errorf("redistest: empty line where RESP has a type")
	}
	kind, text = line[0], line[1:]
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return kind, text, nil, nil
	case '$', '=', '!':
		text, err = f.bulk(r, text)
		return kind, text, nil, err
	case '*', '~', '>':
		words, err = f.elements(r, text, 1)
		return kind, "", words, err
	case '%':
		words, err = f.elements(r, text, 2)
		return kind, "", words, err
	case '|': // attributes, and then the value that has them
		if _, err = f.elements(r, text, 2); err != nil {
			return 0, "", nil, err
		}
		return f.value(r)
	}
	return 0, "", nil, fmt.Errorf("redistest: %q is not RESP", line)
}

func (f *frame) bulk(r *bufio.Reader, size string) (string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 { // negative is the null of RESP2
		return "", err
	}
	start := len(f.raw)
	f.raw = append(f.raw, make([]byte, n+len("\r\n"))...)
	_, err = io.ReadFull(r, f.raw[start:])
	return string(f.raw[start : start+n]), err
}

func (f *frame) elements(r *bufio.Reader, size string, times int) ([]string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return nil, err
	}
	words := make([]string, n*times)
	for i := range words {
		if _, words[i], _, err = f.value(r); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// word returns element i in lower case, "" if there is none.
func (f *frame) word(i int) string {
	if i >= len(f.words) {
		return ""
	}
	return strings.ToLower(f.words[i])
}

// published returns what a message of pub/sub says, in the form of RESP3 (a push)
// or of RESP2 (an array).
func (f *frame) published() (channel, payload string, ok bool) {
	n := len(f.words)
	switch kind := f.word(0); {
	case n == 3 && (kind == "message" || kind == "smessage"), n == 4 && kind == "pmessage":
		return f.words[n-2], f.words[n-1], true
	}
	return "", "", false
}

// isSubscription says whether a word is a command of pub/sub that is answered by
// one confirmation per channel, each of which starts with the same word.
func isSubscription(word string) bool {
	switch word {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}
