.PHONY: help test race lint bench mutants demo release ci soak

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

test: ## all tests of all modules; the legs on a real Redis need redis-server on the PATH
	go test work

race: ## all tests under the race detector
	go test -race work

lint: ## format, vet and static analysis
	@test -z "$$(gofmt -l .)" || (gofmt -l . && false)
	go vet work
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 work

bench: ## benchmarks of the root package, against a redis-server that they start
	go test -run '^$$' -bench . -count 6 .

mutants: ## put known bugs in, one after the other, and show which test finds each
	go run ./internal/test/mutants

demo: ## four processes hand one lock over
	go run ./cmd/holdfast/demo

release: ## try a release of all modules, in a clone; .ci/release v1.2.3 makes one
	.ci/release --try

ci: ## the gate, which runs on every submission: minutes
	.ci/run

soak: ## all that takes long or needs luck: hours; .ci/soak 10s for a short one
	.ci/soak
