# Targets are a few commands; logic lives in Go. `make` alone lists them.
GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null)
ARGS      ?=
REF       ?= main
FUZZTIME  ?= 30s
BENCHTIME ?= 200ms
RELEASE   ?=
# What upgrades are tried from: the last release, until there is one a commit.
OLD       ?= f53b5fe
BENCHCOUNT ?= 6
SOAK      ?= 10m
DISK_ROUNDS ?= 200
KILLS     ?= 200
BACKUP_ROUNDS ?= 200
RUNS      ?= 3
# These take longest, so they begin first. Otherwise the last of them would run alone.
LONG      = ./server ./storage/etcd ./bench ./e2e
# One of so many cases is sent. It has no divisor in common with the verbs, widths and elements, so that all of them come.
WIDTH     ?= 7
BIN       ?= bin
# Where upstream's programs are, and which scenarios of the differential or which suites are meant; empty for all.
ORACLE    ?= bin/oracle
ONLY      ?=
# The peer says the version of Kubernetes that its module is of: v0.37.2 is that of 1.37.2.
PEER      = v1$(patsubst v0%,%,$(shell $(GO) -C bench/peer list -m -f '{{.Version}}' k8s.io/apiextensions-apiserver))
# The build's commit is left out in a clone that git doesn't read, such as another user's.
VCS       := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)

# Before and after what is done in every module of the repo, but for bench/peer and those below conformance (clients, aggregation, kwok and oracle),
# whose dependencies take long to build: their own targets look at them.
MODULES = . $(patsubst %/go.mod,%,$(wildcard */go.mod conformance/etcd35/go.mod examples/*/go.mod))
EACH    = @set -e; for m in $(MODULES); do echo "in $$m"; (cd $$m;
DONE    = ); done
BENCH   = -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME)
# A stand-in takes the place of a package that makes binaries large (release/cmp says how), and the tag leaves out another such one,
# golang.org/x/net/trace. go.mod itself says nothing of it: `go install …@version` refuses a go.mod that replaces.
LEAN    = $(BIN)/lean.mod
BUILD   = CGO_ENABLED=0 $(GO) build -modfile $(LEAN) -tags grpcnotrace -trimpath -buildvcs=$(VCS) -ldflags "-s -w -X github.com/apiserver-lite/apiserver-lite/server/version.release=$(VERSION)"

# With the flags of BUILD, so that packages are compiled once.
DIFFERENTIAL = CGO_ENABLED=0 $(GO) -C conformance run -trimpath -buildvcs=false ./differential
# What upstream's release has linked in: versions to tell clients.
STAMPED      = k8s.io/component-base/version
ORACLE_STAMP = -s -w -X $(STAMPED).gitVersion=v1.37.2 -X $(STAMPED).gitMajor=1 -X $(STAMPED).gitMinor=37 -X $(STAMPED).gitTreeState=clean -X $(STAMPED).gitCommit=0 -X $(STAMPED).buildDate=1970-01-01T00:00:00Z

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

$(LEAN): go.mod go.sum Makefile
	@mkdir -p $(BIN) && cp go.sum $(BIN)/lean.sum && { cat go.mod; echo 'replace github.com/google/go-cmp => ./release/cmp'; } > $@

.PHONY: run
run: $(LEAN) ## build the server and start it; ARGS="--ephemeral" adds flags
	@$(BUILD) -o $(BIN)/apiserver-lite . && exec $(BIN)/apiserver-lite $(ARGS)

.PHONY: build
build: $(LEAN) ## leave a stripped binary in bin/apiserver-lite
	$(BUILD) -o $(BIN)/apiserver-lite .

.PHONY: release
release: ## make what a release consists of in bin/release: binaries for six systems, Debian packages, an image, what is in them, checksums; RELEASE=linux/amd64 makes one
	$(GO) -C release run -buildvcs=false . --version $(VERSION) --out $(abspath $(BIN))/release --targets '$(RELEASE)'

.PHONY: test
test: ## run the tests of every module but those of peer, clients and aggregation, with the race detector
	$(EACH) $(GO) test -race -timeout 20m $$([ $$m = . ] && echo $(LONG) || echo -count 1) ./...$(DONE) # a module sees no change of the server that its tests build

# What vet and staticcheck compile with -race is what test needs. No file is left out because of the tag soak, or of race.
.PHONY: check
check: ## look at the form: gofmt, vet, staticcheck, go.mod, who imports whom
	@bad=$$(gofmt -l .); test -z "$$bad" || { echo "these files aren't formatted: run gofmt -w ."; echo "$$bad"; exit 1; }
	$(EACH) $(GO) vet -race -tags soak ./... && $(GO) mod tidy -diff$(DONE)
	$(EACH) tool="$$(CGO_ENABLED=0 GOFLAGS=-trimpath $(GO) -C $(CURDIR) tool -n staticcheck)"; GOFLAGS="$$GOFLAGS -race" "$$tool" ./...$(DONE)
	$(GO) test -race -vet=off -count 1 -run '^TestImport' .

.PHONY: ci
ci: check test differential-replay bench-once ## what must pass before a change goes in: check, test, differential-replay and bench-once

.PHONY: cover
cover: ## run the tests and print the share of statements that they reach; bin/cover.out has the lines
	@mkdir -p bin && $(GO) test -coverpkg=./... -coverprofile=bin/cover.out ./... && $(GO) tool cover -func=bin/cover.out | tail -1

.PHONY: console
console: ## make the console's files in server/console/dist from the sources in console/src; npm brings the packages
	$(GO) -C console run .

.PHONY: console-picture
console-picture: ## make the README's picture of the console anew, docs/console.png, with chromium
	$(GO) -C console test -count 1 -run '^TestReadmePicture$$' . -picture ../docs/console.png

.PHONY: bench
bench: ## run every Go benchmark for BENCHTIME (200ms); `go run ./bench` lists the scenarios
	$(EACH) $(GO) test $(BENCH) ./...$(DONE)

.PHONY: bench-once
bench-once: ## run every Go benchmark once, small and with the race detector, so that none rots
	$(GO) test -race -short -run '^$$' -bench . -benchtime 1x $$(grep -rl --include=*_test.go --exclude-dir=conformance --exclude-dir=console '^func Benchmark' . | xargs -n1 dirname | sort -u)
	cd conformance && $(GO) test -race -short -run '^$$' -bench . -benchtime 1x .
	cd console && $(GO) test -race -short -run '^$$' -bench . -benchtime 1x .

.PHONY: bench-compare
bench-compare: ## run the benchmarks of REF (main) and of this tree, BENCHCOUNT (6) times, and compare
	@rm -rf bin/ref && mkdir -p bin/ref && git archive $(REF) | tar -x -C bin/ref
	$(GO) -C bin/ref test $(BENCH) -count $(BENCHCOUNT) ./... >bin/ref.txt && $(GO) test $(BENCH) -count $(BENCHCOUNT) ./... >bin/new.txt && rm -rf bin/ref
	$(GO) tool benchstat bin/ref.txt bin/new.txt

.PHONY: peer
peer: ## build upstream's server and etcd, which we compare with, in bin/peer; a module of its own
	$(GO) -C bench/peer vet -trimpath ./... && $(GO) -C bench/peer build -trimpath -buildvcs=false -ldflags "-X k8s.io/component-base/version.gitVersion=$(PEER)" -o $(CURDIR)/bin/peer/ ./...

.PHONY: figures
figures: build peer ## measure this tree and the peer in turn, RUNS (3) times: the table of docs/performance.md
	@$(GO) run -buildvcs=false ./bench compare --server $(BIN)/apiserver-lite --with-command bin/peer/peer --runs $(RUNS)

.PHONY: figures-compare
figures-compare: build ## measure this tree and REF (main) in five turns; fails where a median is worse by more than a tenth
	@rm -rf bin/ref && mkdir -p bin/ref && git archive $(REF) | tar -x -C bin/ref && $(MAKE) -C bin/ref build VERSION=$(REF) && mv bin/ref/bin/apiserver-lite bin/apiserver-lite-ref && rm -rf bin/ref
	@$(GO) run -buildvcs=false ./bench compare --server $(BIN)/apiserver-lite --with bin/apiserver-lite-ref --essential --worse 1.1

.PHONY: scale
scale: build peer ## start up to seven processes, members and replicas over etcd, and compare their costs with docs/scale.md
	@$(GO) run -buildvcs=false ./bench slopes --server $(BIN)/apiserver-lite --etcd bin/peer/etcd --sizes 1,3,6 --check 1.5
	@$(GO) run -buildvcs=false ./bench slopes --server $(BIN)/apiserver-lite --members 1 --sizes 1,3,5,7 --check 1.5

.PHONY: growth
growth: build ## measure a create, a get, a list, an event and a start with 1,000 to 1,000,000 objects, for docs/scale.md; takes some ten minutes
	@$(GO) run -buildvcs=false ./bench growth --server $(BIN)/apiserver-lite --sizes 1000,10000,100000,1000000

.PHONY: figures-replicas
figures-replicas: build peer ## measure three members against one process, and a remote etcd's replicas against the peer over the same etcd
	@$(GO) run -buildvcs=false ./bench compare --server $(BIN)/apiserver-lite --members 3 --with $(BIN)/apiserver-lite --runs $(RUNS) --scenarios writes,get,fanout
	@$(GO) run -buildvcs=false ./bench compare --server $(BIN)/apiserver-lite --etcd bin/peer/etcd --with-command bin/peer/peer --runs $(RUNS) --scenarios writes,get,fanout
	@$(GO) run -buildvcs=false ./bench get --server $(BIN)/apiserver-lite --members 3 --at 1 --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench get --server $(BIN)/apiserver-lite --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench lag --server $(BIN)/apiserver-lite --members 3 --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench failover --server $(BIN)/apiserver-lite --members 3 --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench handover --server $(BIN)/apiserver-lite --members 3 --how stop --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench handover --server $(BIN)/apiserver-lite --members 3 --how kill --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench handover --server $(BIN)/apiserver-lite --etcd bin/peer/etcd --replicas 3 --how stop --runs $(RUNS)
	@$(GO) run -buildvcs=false ./bench handover --server $(BIN)/apiserver-lite --etcd bin/peer/etcd --replicas 3 --how kill --runs $(RUNS)

.PHONY: oracle
oracle: ## build upstream's kube-apiserver, kube-controller-manager, kube-scheduler, e2e.test and etcd in bin/oracle; a module of its own, some 25 minutes at first
	$(GO) -C conformance/oracle build -ldflags "$(ORACLE_STAMP)" -o $(abspath $(ORACLE))/ $(addprefix k8s.io/kubernetes/cmd/,kube-apiserver kube-controller-manager kube-scheduler)
	$(GO) -C conformance/oracle test -c -ldflags "$(ORACLE_STAMP)" -o $(abspath $(ORACLE))/e2e.test k8s.io/kubernetes/test/e2e
	$(GO) -C bench/peer build -trimpath -buildvcs=false -o $(abspath $(ORACLE))/etcd ./etcd

.PHONY: differential
differential: build ## send the same requests to upstream (ORACLE) and to this tree, and print where the answers differ; ONLY='^pods' picks, ARGS=--all prints what testdata/notyet allows too (a folder that is there only while something differs)
	@$(DIFFERENTIAL) live --bin $(abspath $(ORACLE)) --only '$(ONLY)' $(ARGS)

.PHONY: differential-replay
differential-replay: build ## compare this tree with what upstream was recorded to answer; ONLY and ARGS as for differential, ARGS=--summary counts
	@$(DIFFERENTIAL) replay --only '$(ONLY)' $(ARGS)

.PHONY: differential-shrink
differential-shrink: build ## as differential-replay, and take out of conformance/differential/testdata/notyet what no longer differs
	@$(DIFFERENTIAL) shrink --only '$(ONLY)' $(ARGS)

.PHONY: record
record: ## record what upstream (ORACLE) answers to the differential's requests; ONLY='^pods' does a part
	@$(DIFFERENTIAL) record --bin $(abspath $(ORACLE)) --only '$(ONLY)' $(ARGS)

.PHONY: clients
clients: ## run Helm and Debian's kubectl 1.20 against the server; a module of its own, and no part of ci
	$(GO) -C conformance/clients vet ./... && $(GO) -C conformance/clients test -count 1 -timeout 30m -v ./...

.PHONY: aggregation
aggregation: peer ## run upstream's sample-apiserver behind the server, as an aggregated API server; a module of its own, and no part of ci
	$(GO) -C conformance/aggregation vet ./... && $(GO) -C conformance/aggregation test -count 1 -timeout 30m -v ./...

.PHONY: suites
suites: ## run the tests of controller-runtime and of eleven others, which use envtest, against the server and, where ORACLE has upstream's programs, against these too: the table of docs/testing.md. ONLY=karpenter picks; CI runs a few
	$(GO) -C conformance test -count 1 -timeout 3h -v ./suites -args -all -only '$(ONLY)' $(if $(wildcard $(ORACLE)/kube-apiserver),-pair $(abspath $(ORACLE)))

# What upstream's programs don't bring: kubectl, kwok, and what nodes and pods of kwok's go through.
KWOK_STAGES = $(shell $(GO) -C conformance/kwok list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage

.PHONY: kwok
kwok: ## build kwok, which plays nodes, and kubectl in bin/oracle; kwok is a module of its own
	$(GO) -C conformance/kwok build -trimpath -o $(abspath $(ORACLE))/ sigs.k8s.io/kwok/cmd/kwok
	$(GO) -C conformance build -trimpath -o $(abspath $(ORACLE))/ ./kubectl
	install -D -m 644 -t $(ORACLE)/stages $(addprefix $(KWOK_STAGES)/,node/fast/node-initialize.yaml node/heartbeat-with-lease/node-heartbeat-with-lease.yaml pod/fast/pod-ready.yaml pod/fast/pod-complete.yaml pod/fast/pod-delete.yaml)

.PHONY: conformance
conformance: build ## run Kubernetes' own conformance tests against upstream's programs (ORACLE) and this tree, with kwok's nodes, and write docs/conformance.md; at most an hour, then again until none is left. ARGS="--only REGEXP" picks some
	$(GO) -C conformance run ./kubernetes --programs $(abspath $(ORACLE)) --as pair --for 27m $(ARGS)
	$(GO) -C conformance run ./kubernetes --programs $(abspath $(ORACLE)) --as ours --for 27m $(ARGS)

.PHONY: conformance-quick
conformance-quick: build ## run the fifty quickest of those about the API against this tree, ten minutes at most; before each release
	$(GO) -C conformance run ./kubernetes --programs $(abspath $(ORACLE)) --as ours --quickest 50 --for 9m

.PHONY: rollout
rollout: build ## measure a Deployment of 1,000 pods with upstream's controller manager and scheduler on upstream's programs (ORACLE) and on this tree, RUNS (3) times in turn
	$(GO) -C conformance run ./rollout --programs $(abspath $(ORACLE)) --runs $(RUNS)

.PHONY: vuln
vuln: ## look for known vulnerabilities in what is linked; asks a database on the network, so it's no part of ci
	$(EACH) $(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...$(DONE)

.PHONY: width
width: ## send lists of up to 100,000 elements to each list of each kind, by each verb at each kind, and fail where one costs over 1 s of CPU or 300 MB; half an hour, WIDTH=1 tries each list with each verb and width and takes hours
	$(GO) test -count 1 -timeout 6h ./server/width -args -sample $(WIDTH)

.PHONY: mutants
mutants: ## break some sixty promises, one at a time, and print which test caught each; up to an hour. ARGS="watch quota" picks some
	@nice $(GO) run ./mutants $(ARGS)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sed 's|/[^/]*:func | |' | sort | while read -r dir target; do \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir </dev/null || exit 1; done

.PHONY: soak
soak: ## run writers, watchers, restarts and compactions against a model and against the binary, each for SOAK (10m), then soak-kill's
	SOAK=$(SOAK) KILLS=$(KILLS) $(GO) test -tags soak -race -p 1 -timeout 0 -run '^TestSoak(Kill)?$$' -v ./storage/cacher ./client ./e2e

.PHONY: soak-disk
soak-disk: ## fill and empty two small disks DISK_ROUNDS times each (200, some twenty minutes) under load; as root, it mounts them. It's about the disk, so without the race detector
	DISK_ROUNDS=$(DISK_ROUNDS) $(GO) test -tags soak -timeout 0 -run '^TestSoakDisk$$' -v ./e2e

.PHONY: upgrade
upgrade: ## build OLD (the commit of the first fixture) and open what it leaves with this tree, and the other way round; ARGS=-update makes its directory a fixture of the tests
	@rm -rf bin/old && mkdir -p bin/old && git archive $(OLD) | tar -x -C bin/old && CGO_ENABLED=0 $(GO) -C bin/old build -trimpath -buildvcs=false -ldflags "-s -w" -o ../apiserver-lite-$(OLD) . && rm -rf bin/old
	OLD=$(OLD) OLD_PROGRAM=$(abspath bin)/apiserver-lite-$(OLD) $(GO) test -tags soak -count 1 -timeout 0 -run '^Test(Upgrade(BothWays|OfMembers)|Downgrade.*)$$' -v ./e2e -args $(ARGS)

.PHONY: soak-kill
soak-kill: ## stop, start and kill the binary at a random moment of its start, KILLS (200) times on one directory, without the race detector, so that most kills meet a start
	KILLS=$(KILLS) $(GO) test -tags soak -timeout 0 -run '^TestSoakKill$$' ./e2e

.PHONY: soak-backup
soak-backup: ## write, save a snapshot, kill the binary and restore it, BACKUP_ROUNDS (200) times, each from the last one's directory
	BACKUP_ROUNDS=$(BACKUP_ROUNDS) $(GO) test -timeout 0 -count 1 -run '^TestBackupRounds$$' -v ./e2e

.PHONY: soak-orphans
soak-orphans: ## delete 1,000 owners that leave their dependents, which name them by a version that isn't served
	$(GO) test -race -count 1 ./server -run '^TestOrphanInUnservedVersion$$' -v -args -orphan-rounds 1000

.PHONY: soak-replicas
soak-replicas: ## kill, stop, cut off, restart, add and remove processes that share a store under load, for SOAK (10m); as root, members have networks of their own
	SOAK=$(SOAK) $(GO) test -tags soak -race -timeout 0 -run '^TestSoakReplicas' -v ./e2e
