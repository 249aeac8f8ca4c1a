// This module has no replace directive, with which nobody could install the command. In a
// clone go.work has the library beside it. A release is two tags on one commit, such as
// v0.1.0 and cmd/holdfast/v0.1.0, and the library is required here as it will be tagged.
// go mod tidy cannot find it before: .ci/install does that.
module github.com/holdfast-go/holdfast/cmd/holdfast

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/holdfast-go/holdfast v0.1.0
	github.com/holdfast-go/holdfast/driver/etcd v0.1.0
	github.com/holdfast-go/holdfast/driver/postgres v0.1.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
	github.com/urfave/cli/v3 v3.14.0
	go.etcd.io/etcd/client/v3 v3.7.3
	go.etcd.io/etcd/server/v3 v3.7.3
	go.uber.org/zap v1.27.1
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.48.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
