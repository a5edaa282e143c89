# SPDX-License-Identifier: Apache-2.0
# Long tests, of minutes to hours each, which are part of neither make test nor make test-system.

SURVIVE ?= interp,tc,xdp,bmv2
SLOTS   ?= 16384
SEEDS   ?= 2000
FROM    ?= 1

# ---- The protocol: its model, and the simulator over the compiled program ----
.PHONY: model mutants sim sim-mutants
model: deps ### search the protocol model exhaustively, every configuration
	@$(PYTHON) controlplane/model/check.py model

mutants: deps ### remove each rule of the protocol: the model must show what goes wrong
	@$(PYTHON) controlplane/model/check.py mutants

sim: deps ### simulate SEEDS seeds from FROM on; a failing one prints how to replay it
	@$(GO) run ./controlplane/cmd/netcraq-sim --seeds $(SEEDS) --from $(FROM)

sim-mutants: deps ### remove each rule of the program and the controller: sim must notice
	@$(GO) run ./controlplane/cmd/netcraq-sim --mutants --seeds 20000

# ---- Real chains under faults; histories must be linearizable ----
.PHONY: survive late-messages overload upgrades gateways nodeapi-histories crashes
survive: deps ### kill and cut off switches under load, SECONDS on each engine
	@mkdir -p out
	@$(SUDO) env PATH="$$PATH" NETCRAQ_SURVIVE_ENGINES=$(SURVIVE) NETCRAQ_SURVIVE_SECONDS=$(SECONDS) NETCRAQ_SURVIVE_LEASE=200 NETCRAQ_SURVIVE_KEYS=1000 NETCRAQ_SURVIVE_SLOTS=$(SLOTS) NETCRAQ_SURVIVE_OUT=$(CURDIR)/out \
	  $(GO) test ./test/system/faults -run '^(TestSurvive|TestAdversary)$$' -count 1 -v -timeout $$((12 * $(SECONDS) + 3600))s

late-messages: deps ### delay and reorder the controllers' messages, SECONDS an engine
	@$(SUDO) env PATH="$$PATH" NETCRAQ_LATE_ENGINES=$(SURVIVE) NETCRAQ_LATE_SECONDS=$(SECONDS) \
	  $(GO) test ./test/system/late -count 1 -v -timeout $$((40 * $(SECONDS) + 3600))s

overload: deps ### give a machine four times too much to do, for SECONDS
	@$(SUDO) env PATH="$$PATH" NETCRAQ_OVERLOAD_SECONDS=$(SECONDS) NETCRAQ_OVERLOAD_ENGINES=interp,auto NETCRAQ_OVERLOAD_BY=quota,0,-10 \
	  $(GO) test ./test/system/faults -run '^TestOverload$$' -count 1 -v -timeout $$((6 * $(SECONDS) + 1800))s

upgrades: deps ### upgrade from the last release, and back, under load
	@$(SUDO) env PATH="$$PATH" NETCRAQ_MIXED=1 $(GO) test ./test/system/faults -run '^(TestMixedVersions|TestMixedGateways|TestMixedNodes)$$' -count 1 -v -timeout 3600s
	@$(SUDO) env PATH="$$PATH" NETCRAQ_MIXED=1 $(GO) test ./cni-plugin/agent -run '^TestMixedAgents$$' -count 1 -v -timeout 1800s
	@cd pipelets/synchronizer && NETCRAQ_MIXED=1 $(GO_ABS) test ./netcraq-pipelets -run '^TestMixedPipelets$$' -count 1 -v -timeout 1800s
	@$(SUDO) env PATH="$$PATH" NETCRAQ_PROGRAMS_ENGINES=interp,auto $(GO) test ./test/system/faults -run '^TestPrograms$$' -count 1 -v -timeout 1800s
	@$(SUDO) env PATH="$$PATH" $(GO) test ./test/system/lifecycle -run '^(TestRolling|TestRollingToWatches|TestRollingTakesUp|TestUnknownProgram)$$' -count 1 -v -timeout 1800s

gateways: deps ### kill gateways, switches and etcd members for SECONDS
	@$(SUDO) env PATH="$$PATH" NETCRAQ_LINEARIZABLE=$(SECONDS)s $(GO) test ./test/system/faults -run '^TestGateways$$' -count 1 -v -timeout $$(($(SECONDS) + 600))s

nodeapi-histories: deps ### kill the node API's servers, switches, controllers for SECONDS
	@$(SUDO) env PATH="$$PATH" NETCRAQ_SURVIVE_SECONDS=$(SECONDS) $(GO) test ./test/system/faults -run '^TestNodeAPI$$' -count 1 -v -timeout $$((3 * $(SECONDS) + 600))s

crashes: deps ### kill the server of streams and its consumers for SECONDS
	@env NETCRAQ_STREAMS_CRASHES=$(SECONDS)s NETCRAQ_STREAMS_PARTITIONS=4 NETCRAQ_STREAMS_CONSUMERS=6 \
	  $(GO) test ./test/clients/streams -run '^TestCrashes$$' -count 1 -v -timeout $$((2 * $(SECONDS) + 600))s

# ---- Random input ----
.PHONY: fuzz fuzz-programs
# Without -fuzzminimizetime, fuzzing spends most of its time minimizing new inputs, for a minute
# each.
fuzz: deps ### run each fuzz target for FUZZTIME (1m), or the one named TARGET
	@for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for f in $$(sed -n 's/^func \($(or $(TARGET),Fuzz[A-Za-z0-9]*)\)(.*/\1/p' $$file); do \
	    echo "$$(dirname $$file) $$f" && (cd $$(dirname $$file) && $(GO_ABS) test -vet=off -run '^$$' \
	      -fuzz "^$$f\$$" -fuzztime $(or $(FUZZTIME),1m) -fuzzminimizetime 10x .) || exit 1; done; done

fuzz-programs: deps ### run PROGRAMS random P4 programs on all engines (needs p4c-bm2-ss)
	@mkdir -p out/programs
	@$(SUDO) env PATH="$$PATH" $(GO) test ./test/progfuzz -run '^TestPrograms$$' -count 1 -v -timeout 24h -programs $(or $(PROGRAMS),100) -from $(FROM) -keep $(CURDIR)/out/programs

# ---- Other people's tests ----
.PHONY: etcd-suite p4-suites policy-suite
SUITES ?=
MODES  ?= straight,passed,placed,client
RUN    ?=
etcd-suite: deps ### run etcd's own suites through NetCRAQ (SUITES= MODES= RUN=; 90 min)
	@mkdir -p out/etcd-suite && $(GO) build -buildvcs=false -o out/etcd-suite/suite ./test/etcdsuite
	@$(SUDO) env PATH="$$(dirname "$$(command -v $(GO))"):$$PATH" GOPATH="$$($(GO) env GOPATH)" GOCACHE="$$($(GO) env GOCACHE)" out/etcd-suite/suite -modes $(MODES) -suites "$(SUITES)" -run "$(RUN)"

# make p4-suites P4_TUTORIALS=~/tutorials P4_UTILS=~/p4-utils P4_LEARNING=~/p4-learning P4_GUIDE=~/p4-guide NGSDN=~/ngsdn-tutorial P4C=~/p4c NETCHAIN=~/netchain-p4 NETCACHE=~/netcache-p4
# takes SUITES=tutorials,p4-guide ENGINES=interp,auto,bmv2 ONLY=firewall. The Python packages that
# the suites' scripts import are in a separate environment.
SUITES_VENV := out/p4-suites/venv
export P4_TUTORIALS P4_UTILS P4_LEARNING P4_GUIDE NGSDN P4C NETCHAIN NETCACHE

$(SUITES_VENV)/.requirements: uv.lock requirements-uv.txt test/p4suites/p4config_pb2.py
	@$(call sync,$(SUITES_VENV),p4-suites,--system-site-packages)
	@for p4 in $(SUITES_VENV)/lib/python3*/site-packages/p4; do mkdir -p $$p4/tmp && cp test/p4suites/p4config_pb2.py $$p4/tmp/; done
	@touch $@

p4-suites: deps $(SUITES_VENV)/.requirements ### run other people's material for BMv2 on each engine; a table
	$(call compile,bin/,cmd/netcraq-switch,,switch)
	@$(SUDO) env PATH="$$PATH" PYTHONPATH=test $(PYTHON) -m p4suites --python $(SUITES_VENV)/bin/python --go "$(GO_ABS)" \
	  $(if $(SUITES),--suite $(SUITES)) $(if $(ENGINES),--engine $(ENGINES)) $(if $(ONLY),--only $(ONLY))

policy-suite: deps ### have Cyclonus try netcraq-policies, IPv4 and IPv6 (minutes)
	@cd cni-plugin/policies && for family in 4 6; do \
	  NETCRAQ_POLICY_SUITE=$$family $(GO_ABS) test -count 1 -timeout 3h -v -run '^TestSuite$$' ./netcraq-policies || exit 1; done

# ---- Kubernetes ----
.PHONY: e2e-k8s e2e-kills conformance
COMMA := ,
E2E := $(SUDO) env PATH="$$PATH" GO="$(GO)" PYTHONPATH=test:cni-plugin $(PYTHON) -m e2e run

e2e-k8s: deps-k8s ## bring up a Kubernetes of three nodes and test everything
	@$(E2E) $(if $(FAMILY),--family $(FAMILY)) $(if $(KEEP),--keep) $(if $(CNI),--cni $(CNI)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(CONTROLPLANES),--control-planes $(CONTROLPLANES)) --seconds $(SECONDS)
	@$(GO) run ./internal/licences # Kubernetes' modules are in Go's cache by then

e2e-kills: deps-k8s ### kill nodes and programs of three control planes for SECONDS
	@$(E2E) --control-planes 3 --only ready,chain,kills --seconds $(SECONDS)

conformance: deps-k8s ### have Kubernetes' own tests judge the network (FOCUS= SKIP= CNI= FAMILY= WITH=placed)
	@$(E2E) $(if $(FAMILY),--family $(FAMILY)) $(if $(CNI),--cni $(CNI)) --only conformance$(addprefix $(COMMA),$(WITH)) \
	  $(if $(FOCUS),--focus '$(FOCUS)') $(if $(SKIP),--skip '$(SKIP)')
