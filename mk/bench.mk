# SPDX-License-Identifier: Apache-2.0
# Benchmarks. Each prints a table and writes its results to out/.

BENCHES := bench bench-etcd bench-clients bench-cores bench-guarantees bench-kernel bench-nodeapi bench-streams bench-arrow bench-pipelets
.PHONY: $(BENCHES) figures figures-quick timeline hot-keys replay netchain compare bin/netcraq-bench-jetstream
bench: build ## measure the switch, and BMv2: round trips, queries a second
	@$(SUDO) $(PYTHON) experiments/bench.py

timeline: build ### plot throughput and latency while a switch dies and comes back
	@$(SUDO) $(PYTHON) experiments/timeline.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

# etcd in the version of go.mod. Debian's etcd is older, and reports the progress of watches too
# early.
ETCD := $(GO) build -o bin/etcd go.etcd.io/etcd/server/v3

hot-keys: build ### show hot etcd keys moving into the network (KEEP=1)
	@$(ETCD)
	@$(SUDO) $(PYTHON) experiments/hot_keys.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) $(if $(KEEP),--keep)

replay: build ### replay a real cluster's etcd requests through the gateway
	@$(ETCD)
	@$(SUDO) $(PYTHON) experiments/trace_replay.py

# ---- The evaluation. It keeps every measurement, so an interrupted run resumes. ----

# The other systems of the evaluation. If one is not available, the evaluation omits it and the
# report says so.
PEERS := redis-server memcached
define peers
@( $(call install,$(PEERS)) ) || echo "not all of $(PEERS) could be installed: what is missing is left out"
endef

figures: build ## measure the whole evaluation into out/report.html (hours)
	$(peers)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures

figures-quick: build ### measure a small part of it (15 minutes on two CPUs)
	$(peers)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures --quick

bench-etcd: build ### measure the gateway, client/etcd and grpc-proxy beside etcd
	@$(ETCD) && $(GO) build -o bin/etcd-benchmark go.etcd.io/etcd/v3/tools/benchmark
	@$(SUDO) $(PYTHON) experiments/bench_etcd.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

bench-clients: build ### measure what a request costs a client in Python and Go
	@$(SUDO) $(PYTHON) experiments/bench_clients.py

bench-cores: build ### measure two clients on two CPUs beside one
	@$(SUDO) $(PYTHON) experiments/bench_cores.py

bench-nodeapi: deps ### measure the node API beside gRPC
	$(call compile,bin/,experiments/cmd/netcraq-doors)
	@$(PYTHON) experiments/bench_nodeapi.py

bench-streams: build bin/netcraq-bench-jetstream ### measure streams beside NATS JetStream and etcd's watch
	@$(SUDO) $(PYTHON) experiments/bench_streams.py $(if $(QUICK),--quick)
	@$(SUDO) $(PYTHON) experiments/bench_streams_latency.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) $(if $(QUICK),--writes 100 --rounds 1)

bench-arrow: build $(VENV)/.requirements-arrow ### measure Arrow by files of a node beside Arrow IPC
	@$(PYTHON) experiments/bench_arrow.py $(if $(QUICK),--quick)

bench-pipelets: deps ### measure pipelets beside clients that poll
	@cd pipelets/synchronizer && $(GO_ABS) build -o $(CURDIR)/bin/ ./netcraq-pipelets
	$(call compile,bin/,experiments/cmd/netcraq-bench-pipelets)
	@$(PYTHON) experiments/bench_pipelets.py $(if $(QUICK),--quick)

# JetStream and its load programs, from the module that requires NATS.
bin/netcraq-bench-jetstream: deps
	@cd nodeapi/jetstream && $(GO_ABS) build -o $(CURDIR)/bin/ ./cmd/netcraq-bench-jetstream

netchain: build ### start NetChain, the baseline, with a prompt
	@$(SUDO) env PATH="$$PATH" $(PYTHON) netchain-baseline/run.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK)

compare: build ## measure NetChain, the paper's NetCRAQ and the shipped one
	@$(SUDO) env PATH="$$PATH" $(PYTHON) -m experiments.figures --compare

bench-guarantees: build ### measure what each guarantee of the shipped program costs (needs p4c)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) experiments/guarantees.py

bench-kernel: deps ### measure BMC= and DINT= (their checkouts) beside the switch's programs, per packet
	$(call compile,bin/,experiments/cmd/netcraq-kernel-peers)
	@mkdir -p out
	@$(SUDO) bin/netcraq-kernel-peers $(addprefix --bmc ,$(BMC)) $(addprefix --dint ,$(DINT)) --out out/kernel-peers.json
