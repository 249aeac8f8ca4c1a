// Command demo is holdfast demo alone. Without the clients of PostgreSQL and etcd, which the other
// commands have, it is compiled in half the time.
//
//	go run ./cmd/holdfast/demo
package main

import (
	"context"
	"os"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/demo"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
)

func main() {
	os.Exit(exit.Report(flags.Program(demo.Command()).Run(context.Background(), os.Args)))
}
