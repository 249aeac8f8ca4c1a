package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	etcd "go.etcd.io/etcd/api/v3/version"

	"github.com/holdfast-go/holdfast/bench"
)

// fact is a line about where the figures come from.
type fact struct{ name, value string }

func describe(ctx context.Context, s *bench.Stage) ([]fact, error) {
	version, err := s.Version(ctx)
	facts := []fact{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 MST")},
		{"commit", command("git", "rev-parse", "--short", "HEAD") + dirty()},
		{"CPU", cpu() + ", " + strconv.Itoa(runtime.NumCPU()) + " cores, shared by clients and Redis"},
		{"kernel", command("uname", "-sr")},
		{"Go", runtime.Version()},
		{"Redis", version + ", over loopback"},
		{"etcd", etcd.Version + ", over loopback"},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
				"github.com/redis/rueidis", "go.etcd.io/etcd/client/v3", "golang.org/x/sync":
				facts = append(facts, fact{m.Path, m.Version})
			}
		}
	}
	return facts, err
}

func dirty() string {
	if command("git", "status", "--porcelain", "--untracked-files=no") != "" {
		return " with changes"
	}
	return ""
}

// command returns what a command prints, nothing if it fails.
func command(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
