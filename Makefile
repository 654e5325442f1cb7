# coordd. `make` lists the targets.

GO ?= go
FUZZTIME ?=

.DEFAULT_GOAL := help
.PHONY: help build run demo test quick race fuzz chaos soak bench lint tools setup setup-test proto clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/coordd and bin/coordctl
	$(GO) build -trimpath -o bin/coordd ./cmd/coordd
	$(GO) build -trimpath -o bin/coordctl ./cmd/coordctl

run: build ## run a cluster of three servers until Ctrl-C
	exec bin/coordd dev --nodes 3

demo: setup-test build ## show a paused worker being fenced off by a real PostgreSQL
	bin/coordctl demo paused-worker

test: setup-test ## run all tests, each fuzz target for 30 s, and the race detector
	GO="$(GO)" scripts/test.sh all

quick: ## run the tests that take under two minutes together
	GO="$(GO)" scripts/test.sh quick

race: ## run all tests under the race detector
	GO="$(GO)" scripts/test.sh race

fuzz: ## run each fuzz target for FUZZTIME (5m)
	GO="$(GO)" FUZZTIME=$(or $(FUZZTIME),5m) scripts/test.sh fuzz

chaos: setup-test ## 1,000 kills, kills at 200 system calls, and 30 minutes of faults: an hour or two
	$(GO) test -count=1 -timeout 4h -v ./test/chaos -kills 1000 -points 200 -length 30m

soak: ## run simulated clusters with new seeds for SOAK (1h), keep what fails in KEEP (soak)
	GO="$(GO)" scripts/soak.sh

bench: build ## run the benchmarks of the packages, and measure a cluster
	GO="$(GO)" scripts/bench.sh

lint: ## run all linters
	scripts/tools.sh golangci-lint gofumpt
	bin/golangci-lint run ./...

tools: ## install the pinned tools into bin/
	GO="$(GO)" scripts/tools.sh

setup: ## install the system packages for tests and proto, or say what is missing
	@scripts/setup.sh test proto

setup-test:
	@scripts/setup.sh test

proto: ## generate code from the .proto files
	GO="$(GO)" scripts/proto.sh

clean: ## delete what was built
	rm -rf bin
