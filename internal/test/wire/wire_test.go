package wire_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// echo is a server that answers what it is asked, and connect a connection to it by a wire.
func echo(t *testing.T) (w *wire.Wire, connect func() net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	w = wire.To(t, "tcp", l.Addr().String())
	return w, func() net.Conn {
		c, err := net.Dial("tcp", w.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		answers(t, c) // so that it is known at both ends
		return c
	}
}

func ask(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Write([]byte("?"))
	require.NoError(t, err)
}

func answers(t *testing.T, c net.Conn) {
	t.Helper()
	ask(t, c)
	hears(t, c)
}

func hears(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

// hearsNothing cannot know what would come later, but the wire is a matter of microseconds.
func hearsNothing(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "%v", err)
}

func TestSilenceIsForEverAndNewConnectionsAreWellAfterIt(t *testing.T) {
	w, connect := echo(t)
	before := connect()
	w.Silence(true)
	ask(t, before)
	hearsNothing(t, before)
	w.Silence(false)
	answers(t, connect())
	ask(t, before)
	hearsNothing(t, before)
}

func TestWhatIsHeldUpComesLater(t *testing.T) {
	for _, way := range []wire.Way{wire.Requests, wire.Answers} {
		w, connect := echo(t)
		c := connect()
		w.Hold(way, true)
		ask(t, c)
		hearsNothing(t, c)
		w.Hold(way, false)
		hears(t, c)
	}
}

func TestCutEndsWhatThereIs(t *testing.T) {
	w, connect := echo(t)
	c := connect()
	w.Hold(wire.Answers, true)
	ask(t, c)
	require.Equal(t, 1, w.Cut())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	w.Hold(wire.Answers, false)
	require.Zero(t, w.Cut())
	answers(t, connect())
}
