# SPDX-License-Identifier: Apache-2.0
# Generated files that are committed: the P4 programs, the eBPF programs in C, the Kubernetes
# resources.

.PHONY: p4 p4-check bpf bpf-check
p4: ### compile the P4 programs (needs p4c)
	@/usr/bin/python3 p4src/compile.py make && /usr/bin/python3 p4src/compile.py make p4src/paper \
	  && /usr/bin/python3 p4src/compile.py make p4src/chip && /usr/bin/python3 p4src/compile.py make netchain-baseline

p4-check: ### check that P4 sources and compiled outputs agree
	@/usr/bin/python3 p4src/compile.py check && /usr/bin/python3 p4src/compile.py check p4src/paper \
	  && /usr/bin/python3 p4src/compile.py check p4src/chip && /usr/bin/python3 p4src/compile.py check netchain-baseline

bpf: deps ### compile the eBPF programs in C (needs clang and llvm-strip)
	@$(GO) test ./internal/bpf -update

bpf-check: deps ### check that the eBPF programs in C and what is compiled agree
	@$(GO) test ./internal/bpf -count 1 -v -run TestCompiled

.PHONY: generate generate-check
generate: deps ### write the resources' definitions, docs/reference and the admin API's generated client anew from the code
	@$(GO) test ./test/reference ./cmd/netcraq ./controlplane/adminserver -count 1 -update \
	  -run '^(TestErrors|TestCounters|TestMetrics|TestP4Program|TestConfiguration|TestChart|TestEvents|TestPrograms|TestReferencePage|TestDocument|TestDocumentPage)$$'
	@for d in cni-plugin/api/v1alpha1 pipelets/api test/adminclient; do (cd $$d && PATH="$$(dirname "$$(command -v $(GO))"):$$PATH" $(GO_ABS) generate ./...) || exit 1; done

generate-check: generate ### check that what is committed is what make generate writes
	@git diff --exit-code --stat -- cni-plugin/api cni-plugin/deploy/crd pipelets/api pipelets/deploy docs/reference test/adminclient || \
	  { echo "The committed files were not what the code says. Commit what make generate has written, and run make chart."; exit 1; }
