.PHONY: help test race lint bench demo ci

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

test: ## all tests; the legs on a real Redis need redis-server on the PATH
	go test ./...

race: ## all tests under the race detector
	go test -race ./...

lint: ## format, vet and static analysis
	@test -z "$$(gofmt -l .)" || (gofmt -l . && false)
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: ## benchmarks of the root package, against a redis-server that they start
	go test -run '^$$' -bench . -count 6 .

demo: ## four processes hand one lock over
	go run ./cmd/holdfast demo

ci: ## what runs on every submission
	.ci/run
