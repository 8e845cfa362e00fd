# `make` lists the targets. Everything runs without configuration; tests and
# demo start the PostgreSQL and the Kafka broker they need.

GO ?= go
BIN := bin/ncmp-inventory
# What FUZZ runs, and for how long; see `make fuzz`.
FUZZTIME ?= 30s
HANDLES ?= 10000

.DEFAULT_GOAL := help
.PHONY: help build test race cover chaos mutants bench bench-compare fuzz lint fmt vulncheck docs kafka-up kafka-down test-kafka check-deploy demo ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the static binary, bin/ncmp-inventory
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/ncmp-inventory

test: ## all tests
	$(GO) test ./...

race: ## all tests with the race detector
	$(GO) test -race ./...

cover: ## all tests, with their coverage of all packages
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

chaos: ## everything fails at random, and nothing may be lost; TIME=15m, SEED=7, KAFKA=embedded, ONLY=frozen
	$(GO) test ./cmd/internal/chaos -run '^TestChaos$$' -count=1 -v -timeout 0 \
	  -chaos.time $(or $(TIME),15m) -chaos.seed $(or $(SEED),0) -chaos.kafka $(or $(KAFKA),apache) -chaos.only '$(ONLY)'

mutants: ## bugs planted in the worker, each to be found by a short chaos; a quarter of an hour
	$(GO) test ./cmd/internal/chaos -tags mutants -run '^TestPlantedBugsInTheWorkerAreFound$$' -count=1 -v -timeout 0

bench: ## the benchmarks beside the code (`ncmp-inventory bench` measures the whole)
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-compare: ## those of commit BASE and of this tree in turns; BASE=HEAD~1, COUNT, BENCH, PKG
	.ci/bench-compare.sh $(or $(BASE),HEAD)

fuzz: ## every fuzz test, FUZZTIME each (default 30s)
	@set -e; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "== $$p $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; \
	  done; \
	done

lint: ## golangci-lint with .golangci.yml
	.ci/tools.sh golangci-lint run ./...

fmt: ## format the code
	.ci/tools.sh golangci-lint fmt ./...

vulncheck: ## known vulnerabilities in what the code calls
	.ci/tools.sh govulncheck ./...

docs: ## write the generated parts of the documentation
	$(GO) test ./cmd/ncmp-inventory -run '^(TestReadme|TestEventsReference|TestTroubleshooting)' -update

kafka-up: ## start Apache Kafka for the tests and print its address
	@.ci/kafka.sh up

kafka-down: ## stop it and remove its data
	@.ci/kafka.sh down

test-kafka: ## the tests that need Apache Kafka, against one of their own
	.ci/run kafka

check-deploy: ## the chart, dashboard, alerts and compose files fit the program
	.ci/run deploy

demo: build ## everything on this machine; HANDLES=10000
	$(BIN) demo --handles $(HANDLES)

ci: ## all that has to pass before a change is taken
	.ci/run

clean: ## remove what was built, fetched and measured
	rm -rf bin .cache coverage.out
