# SPDX-License-Identifier: Apache-2.0
# The two test commands. `make test` has the tests that only compute, a chain in one process, and a
# short run of a real chain; it repeats no test. `make test-system` makes networks, starts etcd and
# waits in real time; it repeats a test that fails once, and records it in out/flaky.csv.

# Packages whose tests make networks, start etcd or other programs, or wait in real time. The
# longest come first, so that the run does not end with one.
SYSTEM := ./test/system/lifecycle ./cmd/netcraq ./client/etcd/guarded ./test/system/faults ./test/system/late ./cni-plugin/agent \
  ./etcd-monitor/gateway ./switch/ebpf ./test/system/inprocess ./switch/p4rtserver ./switch/ports ./switch/stf ./switch/offload \
  ./switch/queues ./cni-plugin/ingressfilter ./cni-plugin/kube ./cni-plugin/kube/podapi \
  ./cni-plugin/kube/leaderlink ./cni-plugin/kube/adminrights ./cni-plugin/podroutes ./cni-plugin/nodeswitch ./cni-plugin/leader \
  ./controlplane/adminserver ./controlplane/controller ./controlplane/etcdstore ./controlplane/p4rt ./controlplane/placement/placementcontroller \
  ./controlplane/leadership ./client ./client/etcd ./client/etcd/guardedshell ./client/etcd/seal ./client/etcd/slotclient \
  ./client/fromadmin ./client/node ./client/streams ./test/clients/js ./test/clients/node ./test/clients/streams ./test/clients/udp \
  ./etcd-monitor/cmd/etcd-monitor ./etcd-monitor/etcdtest \
  ./etcd-monitor/hotkeys ./etcd-monitor/relay ./experiments/cmd/netcraq-doors ./experiments/cmd/netcraq-streams ./experiments/peers ./experiments/replay \
  ./internal/kernelload ./internal/nftwatch ./nodeapi/durable ./nodeapi/durable/door ./nodeapi/etcdevents ./nodeapi/notify \
  ./nodeapi/server ./streams/broker
# Packages whose tests compute and have almost no goroutines. They are tested without the race
# detector.
COMPUTING := ./p4src ./netchain-baseline ./experiments/paperchain ./experiments/programs ./controlplane/sim ./controlplane/placement/policy ./client/etcd/slotcodec ./test/progfuzz \
  ./switch/bmv2json ./client/calls ./api/wire ./cni-plugin/privileges
# named FOLDERS: the import paths of packages. Some of the packages are in the modules api, client,
# client/etcd and switch.
named = $(patsubst ./%,$(MODULE)/%,$(1))
# All other packages.
QUICK = $(shell $(GO) list $(PACKAGES) | grep -v $(patsubst .%,-e %$$,$(COMPUTING) $(SYSTEM)))
# Tests that take minutes with the race detector. Other tests of their packages run with it.
WITHOUT_RACE := TestSimulator|TestLinearizable|TestMutants|TestSameAnswers|TestReservedIsOutOfSight|TestLimits|TestLargestValue|TestMemory|TestFullAnswers|TestAnswersWithoutEnd

.PHONY: test test-quick test-computing test-smoke test-python
test: build ## run the fast tests, in minutes, without a retry
	@$(PYTHON) p4src/compile.py check && $(PYTHON) p4src/compile.py check p4src/paper && $(PYTHON) p4src/compile.py check netchain-baseline
	@$(MAKE) --no-print-directory -j3 test-python test-quick test-computing
	@$(MAKE) --no-print-directory test-smoke

test-quick: build
	@set -o pipefail; $(SUDO) env PATH="$$PATH" $(GO) test -race -vet=off -timeout 10m $(QUICK) | { grep -v 'no test files' || true; }

test-computing: build
	@$(SUDO) env PATH="$$PATH" nice -n 5 $(GO) test -vet=off -timeout 40m -skip '^TestMemory$$' $(call named,$(COMPUTING))
	@$(SUDO) env PATH="$$PATH" nice -n 5 $(GO) test -vet=off -run '^TestMemory$$' ./p4src

# These run in parallel, each in its own network, because they wait more than they compute.
APART := unshare --net --mount --pid --fork --mount-proc --kill-child sh -c 'ip link set lo up && exec "$$@"' pytest
PYTEST := $(SUDO) $(APART) $(PYTHON) -m pytest -q -rs

test-python: build
	@$(PYTEST) -p no:cacheprovider --ignore topologies/tests/e2e

test-smoke: build
	@$(PYTEST) -p no:cacheprovider topologies/tests/e2e/test_writes.py topologies/tests/e2e/test_reads.py -k interp

.PHONY: test-system test-networks test-slow test-e2e test-e2e-1 test-e2e-2
test-system: build ## run the tests of whole networks; out/flaky.csv has retries
	@echo "compiling the tests, so that those that measure have the machine to themselves"
	@$(SUDO) $(GO) list -race -test -export $(call named,$(SYSTEM)) >/dev/null
	@$(MAKE) --no-print-directory test-networks
	@$(MAKE) --no-print-directory -j3 test-slow test-e2e-1 test-e2e-2

# Up to six failing tests are run once more. If more fail, or one has a data race, none is repeated.
AGAIN := --rerun-fails=1 --rerun-fails-max-failures=6 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
  --rerun-fails-report out/failed-once.txt

test-networks: build
	@mkdir -p out && rm -f out/failed-once.txt
	@code=0; $(SUDO) $(GO) tool gotestsum --format pkgname-and-test-fails --hide-summary=output $(AGAIN) --packages "$(call named,$(SYSTEM))" \
	  -- -race -vet=off -timeout 20m -p 3 || code=$$?; \
	  $(PYTHON) mk/flaky.py go out/failed-once.txt; exit $$code
	@echo "TestSurvive above was the bounded run: 16 s of one engine. make survive is the long one: 60 s of each, and a recovery of 16,384 slots"

test-slow: build
	@nice -n 5 $(GO) test -vet=off -timeout 20m -run '^($(WITHOUT_RACE))$$' \
	  $(call named,./client/etcd/guarded ./etcd-monitor/cmd/etcd-monitor ./nodeapi/coordination ./controlplane/p4rt)
	@NETCRAQ_STREAMS_CRASHES=1m nice -n 5 $(GO) test -vet=off -run '^TestCrashes$$' ./test/clients/streams

test-e2e: build ### test whole networks from Python alone, in two lanes
	@$(MAKE) --no-print-directory -j2 test-e2e-1 test-e2e-2

test-e2e-1 test-e2e-2: build
	@lane=$(@:test-e2e-%=%); rm -rf out/pytest-$$lane; \
	$(PYTEST) -o cache_dir=$(CURDIR)/out/pytest-$$lane topologies/tests/e2e --lane $$lane/2 || { code=$$?; \
	  $(PYTHON) mk/flaky.py python out/pytest-$$lane/v/cache/lastfailed --most 4 && [ $$code = 1 ] || exit $$code; \
	  $(PYTEST) -o cache_dir=$(CURDIR)/out/pytest-$$lane topologies/tests/e2e --lf --lfnf none; }

# ---- Separate modules, and the clients in other languages ----

.PHONY: test-modules licences test-arrow test-arrow-go test-java test-jetstream test-policies test-pipelets
test-modules: deps $(VENV)/.packages-modules ## vet, build and test every other Go module of the tree
	@GO="$(GO_ABS)" mk/modules.sh
	@$(MAKE) --no-print-directory licences

# Licences that a Python package may have, in the words of its metadata. scapy, which is under the
# GPL, is an extra of client/python that drives tests: nothing that ships imports it by default.
LICENCES := Apache Software License;Apache-2.0;Apache-2.0 OR BSD-2-Clause;BSD License;BSD-2-Clause;BSD-3-Clause;\
  BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0;ISC License (ISCL);MIT;MIT License;MIT-CMU;PSF-2.0;Python Software Foundation License
LICENSED := dev go arrow

# This runs after the modules are built, because Go modules' licences are read from Go's module
# cache. Python packages' licences are read from the installed packages. make test-java checks those
# of Java.
licences: deps ### check the licence of every dependency of Go, Python and Node.js
	@$(GO) run ./internal/licences
	@$(PYTHON) -m piplicenses --with-system --ignore-packages scapy --packages \
	  $$($(UV) export -q --frozen --no-hashes $(addprefix --only-group ,$(LICENSED)) | sed -n 's/==.*//p') \
	  --allow-only "$(subst ; ,;,$(LICENCES))" >/dev/null

test-jetstream: deps ### build and test the sidecar with NATS JetStream
	@GO="$(GO_ABS)" mk/modules.sh nodeapi/jetstream

test-policies: deps ### build and test netcraq-policies
	@GO="$(GO_ABS)" mk/modules.sh cni-plugin/policies

test-pipelets: deps $(VENV)/.packages-modules ### build and test the synchronizer of pipelets, with DuckDB
	@GO="$(GO_ABS)" mk/modules.sh pipelets/synchronizer

# make test skips the tests that need pyarrow (55 MB).
test-arrow: build $(VENV)/.requirements-arrow ### test Arrow in streams for Python, with pyarrow
	@$(PYTHON) -m pytest -q -rs client/python/tests/test_streams_arrow.py experiments/test_bench_arrow.py

test-arrow-go: deps $(VENV)/.requirements-arrow ### test Arrow in streams for Go, alone and with pyarrow
	@GO="$(GO_ABS)" NETCRAQ_ARROW_PYTHON=$(abspath $(PYTHON)) mk/modules.sh client/streams/arrow

test-java: deps $(VENV)/.packages-modules ### build and test the Java client and the Flink source (JDK 17, Maven)
	@mkdir -p out && $(GO) build -o out/memserver ./nodeapi/internal/memserver
	@cd client/java && NETCRAQ_MEMSERVER=$(CURDIR)/out/memserver mvn -q -B -Dorg.slf4j.simpleLogger.log.org.codehaus.mojo.license=warn verify
