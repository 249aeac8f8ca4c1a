//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == "work" { // this is a worker
		if err := work(context.Background(), os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestPausedHolderIsRefused(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), &out, true))
	assert.Regexp(t, `slow goes on\nslow is told: 409 Conflict .*"Stale fence".*\nthe balance is 150\n$`, out.String())
}

func TestWithoutTheGuardAChangeIsLost(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), &out, false))
	assert.Regexp(t, `fast is told: 200 OK \nslow goes on\nslow is told: 200 OK \nthe balance is 110\n$`, out.String())
}
