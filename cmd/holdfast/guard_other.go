//go:build !unix

package main

import (
	"context"
	"errors"
)

const watchCommand = "__watch"

func watch([]string) {}

func (g *guard) run(context.Context) error {
	return &failure{exitFailure, errors.New("holdfast run needs process groups, which only Unix has")}
}
