// Package connection_test has the ways in which a client can be connected to a server.
package connection_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
