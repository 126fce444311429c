# `make help` lists the targets. .ci/run calls them, so that what passes here
# passes there. Needs Go alone; tests on a real Redis need redis-server too and
# say loudly when there is none.
#
# "work" is what Go calls all packages of all modules in go.work; ./... is those of
# this folder's module alone.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# Tools, pinned by version. They may be built with a newer Go than the library's
# (GOTOOLCHAIN=auto).
GOLANGCI_VERSION := 2.15.0
VULNCHECK_VERSION := 1.8.0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/asynq-throttle
TOOLS := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)

# How much of each.
RAPID_CHECKS ?= 300
RAPID_SEED ?= 0
FUZZ_TIME ?= 5s
PEER_CALLS ?= 10000
PEER_TASKS ?= 10000
PEER_ROUNDS ?= 5
TEST_TIMEOUT ?= 25m
SEEDS ?= 200

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Most of the time examples and faults wait: three packages at a time keep two cores busy.
.PHONY: test
test: ## what the README says, go test ./..., and the tests of the other modules
	@type -P redis-server >/dev/null || echo 'NOT TESTED on a real Redis: no redis-server in PATH (go test -v names each test that is left out)'
	go test -p 3 -timeout $(TEST_TIMEOUT) work

.PHONY: long
long: ## every test in full, many properties and worlds, a million tenants: an hour (docs/development.md says when)
	LONG=1 REQUIRE_REDIS=1 TENANTS=1000000 go test -count=1 -timeout 2h work
	$(MAKE) properties RAPID_CHECKS=1000
	$(MAKE) simulate SEEDS=1000
	cd bench && go run . -only longest -strict

# miniredis' Lua interpreter takes five times as long when the race detector watches it: it is left out. miniredis
# itself must be watched: it shares instances of generic types, such as atomic.Pointer, with packages that are, and the
# linker takes either; the detector would then miss that these order what other packages read and write.
RACE := -race -gcflags='github.com/yuin/gopher-lua/...=-race=false'

# What runs without the race detector: properties, which call from one goroutine; packages that start
# no goroutine; what drives a browser or measures; and tests that call longtest.Unwatched. `make test` has them all.
UNWATCHED_PACKAGES := /(lua|upstream|internal/line|internal/try|internal/view|internal/wire|browsertest|bench)$$

.PHONY: race
race: ## the tests in which goroutines meet, in random order, with the race detector
	go list -export -test -deps $(RACE) work >/dev/null
	go test $(RACE) -shuffle=on -p 3 -timeout $(TEST_TIMEOUT) -skip Property $$(go list work | grep -vE '$(UNWATCHED_PACKAGES)')

.PHONY: reliability
reliability: ## faults while jobs run, on real servers; what is measured goes into docs/reliability.md
	@rows=$$(mktemp); trap 'rm -f "$$rows"' EXIT; \
	LONG=1 REQUIRE_REDIS=1 RELIABILITY_ROWS=$$rows go test -count=1 -timeout $(TEST_TIMEOUT) ./internal/reliability/; \
	go run ./internal/reliability/table "$$rows" docs/reliability.md

# How long a soak lasts; its end takes some minutes more.
SOAK ?= 1h

.PHONY: soak
soak: ## a mixed load for an hour amid faults and changes (SOAK=10m); its figures go into docs/trust.md
	SOAK=$(SOAK) SOAK_DOCUMENT=$(CURDIR)/docs/trust.md REQUIRE_REDIS=1 \
	go test -count=1 -run '^TestSoak$$' -timeout 0 -v ./internal/reliability/

# The full size of one drain of each class of faults: the network, refusals, lost data, the
# clock, failovers, workers, the queue. .ci/run has three of them (the small forms of all run
# with the other tests), the nightly run all.
DRAINS ?= ^Test(FaultyNetwork|Refusals|StaleReplica|ClockSteps|SentinelFailover|SlotMoved|WorkerKilled|RollingRestart|QueuePaused)
DRAIN_ROWS := ^(F03|F14|F23_back_by_3)

.PHONY: drains
drains: ## jobs drained in full amid a fault, one of each class
	LONG=1 go test ./internal/reliability/ -count=1 -run '$(DRAINS)/$(DRAIN_ROWS)' -timeout $(TEST_TIMEOUT)

.PHONY: properties
properties: ## the rapid properties with many checks, others each time (RAPID_CHECKS=1000 RAPID_SEED=0)
	go test ./throttle/ -run Property -rapid.checks=$(RAPID_CHECKS) -rapid.seed=$(RAPID_SEED) -timeout $(TEST_TIMEOUT)
	go test ./lua/ -rapid.checks=$(RAPID_CHECKS) -rapid.seed=$(RAPID_SEED) -timeout $(TEST_TIMEOUT)

.PHONY: simulate
simulate: ## worlds of servers, tenants and faults in virtual time, drawn from seeds (SEEDS=10000)
	go test ./internal/simulation -run TestSimulation -seeds=$(SEEDS) -timeout 2h

.PHONY: tenants
tenants: ## a million tenants come and go and leave nothing in Redis
	TENANTS=1000000 go test ./throttle/ -run TestF51_T2 -count=1 -v

# Most of those that ask for a real Redis, and few others: they have run already.
ON_REDIS := Redis|Cluster|Sentinel|Failover|Conformance|Sweep|Scrape

.PHONY: no-redis
no-redis: ## some tests as on a machine without redis-server: they pass, say what they left out, and log no warning
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	REDIS_SERVER=none REQUIRE_REDIS= go test -v -run '$(ON_REDIS)' -timeout $(TEST_TIMEOUT) work >"$$out" 2>&1 || { cat "$$out"; exit 1; }; \
	grep -E '^(ok|\?)\s' "$$out"; \
	! grep -E '^[0-9T:.Z-]+\s+(WARN|ERROR)\s|^asynq: .* (WARN|ERROR):' "$$out" || { echo 'tests that pass warn'; exit 1; }; \
	grep -o 'redistest: NOT TESTED.*' "$$out" | sort || { echo "no test said that it was left out"; exit 1; }

# Servers that Debian's releases have, beside the one in PATH: SUITE/PACKAGE. sid has the newest.
SERVERS ?= trixie/redis-server trixie/valkey-server
# Which of the tests run there. Of those of worker, only some are on a real server.
ON_SERVERS ?= .
WORKER_ON_SERVERS := Cluster|Sentinel|TwoUsers|Checks|ManyClients|OthersGoOn|F18

.PHONY: servers
servers: ## what runs on a real server, on those of other versions (SERVERS='sid/valkey-server'): fetches them from Debian
	@for server in $(SERVERS); do \
	  program=$$(.ci/server '$(CACHE)/servers' "$${server%/*}" "$${server#*/}"); \
	  export REDIS_SERVER="$$program" REQUIRE_REDIS=1; \
	  go test -count=1 -timeout $(TEST_TIMEOUT) -run '$(ON_SERVERS)' -skip '/miniredis$$' ./lua ./throttle ./internal/redistest ./internal/reliability; \
	  go test -count=1 -timeout $(TEST_TIMEOUT) -run '$(WORKER_ON_SERVERS)' ./worker; \
	done

.PHONY: lint
lint: format vet golangci ## formatting, go vet and golangci-lint

.PHONY: format
format: ## fail on files that gofmt would change
	@changed=$$(gofmt -l .); [[ -z $$changed ]] || { printf 'gofmt -w would change:\n%s\n' "$$changed"; exit 1; }

.PHONY: vet
vet: ## go vet in every module
	go vet work

.PHONY: golangci
golangci: ## golangci-lint, installed when its version is not there
	@tool=$$(type -P golangci-lint || true); \
	if ! "$${tool:-false}" version 2>/dev/null | grep -q 'version v\?$(GOLANGCI_VERSION) '; then \
	  tool='$(TOOLS)/golangci-lint'; \
	  [[ -x $$tool ]] || { echo "installing golangci-lint v$(GOLANGCI_VERSION)"; \
	    GOTOOLCHAIN=auto GOBIN='$(TOOLS)' go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION); }; \
	fi; \
	"$$tool" config verify; \
	modules=$$(go list -m -f '{{.Dir}}/...'); \
	"$$tool" run $$modules

.PHONY: deps
deps: ## who may import whom, by go list
	@.ci/deps

.PHONY: modules
modules: ## each module alone, with the versions of its own go.mod: in the workspace, tidy, builds
	@.ci/modules

.PHONY: tidy
tidy: ## go mod tidy in every module
	@.ci/modules -w

.PHONY: release
release: ## rehearse a release, VERSION=v0.1.0: tags and installs it in a clone, publishes nothing
	@.ci/release $(VERSION)

.PHONY: vulncheck
vulncheck: ## known vulnerabilities in what is called; says loudly when it cannot know
	@.ci/vulncheck $(VULNCHECK_VERSION) '$(CACHE)/govulncheck-$(VULNCHECK_VERSION)'

.PHONY: bench
bench: ## every Go benchmark (BENCH_TIME=1x runs each once)
	go test -run '^$$' -bench . -benchtime $(or $(BENCH_TIME),1s) -timeout 20m work

.PHONY: bench-peers
bench-peers: ## cost beside redis_rate and others, on a real Redis (PEER_ONLY=decisions: one section)
	cd bench && go run . -only '$(PEER_ONLY)' -calls $(PEER_CALLS) -tasks $(PEER_TASKS) -rounds $(PEER_ROUNDS)

.PHONY: picture
picture: ## the README's picture: a backlog by asynq's recipe and by this library, on real servers
	cd bench && go run . -picture ../docs/beside.svg

.PHONY: picture-days
picture-days: ## the emailer's picture: a campaign over three days in virtual time, some minutes
	cd examples/emailer && LONG=1 go test . -count=1 -run 'TestCampaignOfDays/Monday' -picture ../../docs/emailer-days.svg

.PHONY: browser
browser: ## the dashboard in a headless chromium; says loudly where there is none
	@type -P chromium || type -P chromium-browser || type -P google-chrome || echo 'NOT TESTED in a browser: no chromium in PATH'
	cd dashboard/browsertest && go test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: screenshots
screenshots: ## the pictures of the dashboard, from the emailer; wants chromium and redis-server
	cd dashboard/browsertest && go run ./screenshots ../../docs

.PHONY: try
try: ## docs/try/index.html: try your limits in a browser, one file without a server
	go run ./internal/try/page docs/try/index.html

.PHONY: benchmarks
benchmarks: ## docs/benchmarks.md: every figure beside the peers, on a machine that does nothing else; a quarter of an hour
	cd bench && go run . -full -write ../docs/benchmarks.md

# Where to look for fuzz targets. Each package of the throttle's and of the rig's is compiled
# anew, with all that it imports, for ten seconds and more: .ci/run takes those that import
# little, the nightly run all. What was found once is a seed, which go test runs too.
FUZZ_IN ?= .

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME (FUZZ_IN=./upstream: those of some folders)
	@grep -rE --include='*_test.go' '^func Fuzz' $(FUZZ_IN) | sed -E 's|/[^/]*:func (Fuzz[A-Za-z0-9_]*).*| \1|' | sort | \
	while read -r package target; do \
	  echo "$$package $$target"; \
	  go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$package" </dev/null; \
	done

.PHONY: smoke
smoke: ## run the examples with nothing but Go, all at once: exit status 0 and no window over its limit
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out" ./examples/emailer ./examples/crawler ./examples/llm; \
	for example in emailer crawler llm; do \
	  { "$$out/$$example" -json >"$$out/$$example.json" 2>"$$out/$$example.log" || touch "$$out/$$example.failed"; } & \
	done; wait; \
	for example in emailer crawler llm; do \
	  cat "$$out/$$example.json"; \
	  [[ ! -e $$out/$$example.failed ]] || { cat "$$out/$$example.log"; echo "$$example failed"; exit 1; }; \
	  grep -Eq '"windows_over_limit": *0([,} ]|$$)' "$$out/$$example.json" || { echo "$$example: a window was over its limit"; exit 1; }; \
	done

.PHONY: compose-check
compose-check: ## is docker-compose.yml one?
	go run ./.ci/compose docker-compose.yml
	@if docker compose version >/dev/null 2>&1; then docker compose -f docker-compose.yml config -q; \
	else echo 'no docker compose here: checked as YAML only'; fi
