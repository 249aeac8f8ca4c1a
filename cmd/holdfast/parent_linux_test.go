package main

import (
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestCommandEndsIfHoldfastIsKilled(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Mini(t), "orphan", "--", "sh", "-c",
		`trap 'echo got TERM; exit' TERM; echo group $$; while :; do sleep 0.01; done`).start()
	group := groupOf(t, p)
	p.signal(syscall.SIGKILL)
	p.awaitOutput("got TERM")
	awaitGroupGone(t, group)
}
