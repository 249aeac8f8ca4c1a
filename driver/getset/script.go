package getset

import (
	"context"
	_ "embed"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

var (
	//go:embed script/acquire.lua
	acquireText string
	//go:embed script/renew.lua
	renewText string
	//go:embed script/release.lua
	releaseText string
	//go:embed script/inspect.lua
	inspectText string

	acquire = redisscript.New("acquire", acquireText)
	renew   = redisscript.New("renew", renewText)
	release = redisscript.New("release", releaseText)
	inspect = redisscript.New("inspect", inspectText)
)

func call(s *redisscript.Script, keys []string, args ...any) redisscript.Call {
	return s.Call("getset", len(args), keys...).With(args...)
}

func (d *Driver) run(ctx context.Context, s *redisscript.Script, keys []string, args ...any) (*redisscript.Command, error) {
	return redisscript.Run(ctx, d.rdb, call(s, keys, args...))
}
