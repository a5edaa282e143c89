# SPDX-License-Identifier: Apache-2.0
# NetCRAQ. `make` lists the targets of every day, `make help-all` all targets. Most targets are in mk/.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# ---- Settings of `make run` (make run NODES=6 SWITCH=bmv2 KEEP=1) and of everything that starts switches ----
NODES   ?= 4
SWITCH  ?= embedded
ENGINE  ?= auto
HOOK    ?= auto
KEYS    ?=
PROFILE ?= 8192
KEEP    ?=
SECONDS ?= 60

SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV   := .venv
PYTHON := $(VENV)/bin/python
# A Go that can fetch the toolchain that go.mod requires (1.21 or newer), or the Go that `make deps` put into .venv.
GO     := $(shell if go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then echo go; else echo $(VENV)/bin/go; fi)
# The packages of the root's module, and of the modules that it requires from this tree (api, client, client/etcd, switch).
MODULE := github.com/netcraq/netcraq
PACKAGES := ./... $(MODULE)/api/... $(MODULE)/client/... $(MODULE)/switch/...
GO_ABS := $(if $(filter go,$(GO)),go,$(abspath $(GO)))
COMMANDS := cni-plugin/netcraq-agent cni-plugin/netcraq-cni controlplane/cmd/netcraq-controller cmd/netcraq cmd/netcraqctl \
            etcd-monitor/cmd/etcd-monitor nodeapi/cmd/netcraq-sidecar netchain-baseline/cmd/netchain experiments/cmd/netcraq-peers \
            experiments/cmd/netcraq-paper experiments/cmd/netcraq-programs experiments/cmd/netcraq-replay \
            experiments/cmd/netcraq-streams experiments/cmd/netcraq-doors
SWITCH_COMMANDS := cmd/netcraq-switch cmd/netcraq-stf

.PHONY: help help-all
help: ## list the targets of every day
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*[^#]## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  make help-all lists the others. make run takes NODES=2..8 SWITCH=embedded|bmv2\n'
	@printf '  ENGINE=auto|ebpf|interp HOOK=auto|tc|xdp PROFILE=128|1024|4096|8192 KEYS=FILE\n  KEEP=1\n'

help-all: ### list all targets
	@awk -F ':.*##+ ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST) | sort

include mk/*.mk

# compile OUTPUT,PACKAGES,FLAGS,MODULE: builds packages of the module in the folder MODULE (by default the root) with their commit.
# It shows the progress: on a terminal in one line that changes, in a log with one line for each hundred packages
define compile
@mkdir -p $(1); set -o pipefail; $(GO) build -C $(or $(4),.) -v $(3) -o $(CURDIR)/$(1) $(addprefix ./,$(2)) 2>&1 \
	| awk -v list='$(GO) list -C $(or $(4),.) -deps $(3) $(addprefix ./,$(2)) | wc -l' \
	-v bar=$$([ -t 2 ] && echo 1) 'NF == 1 || /^go: downloading / { if (!of) { list | getline of }; n += NF == 1; \
	  if (bar) printf "\r\033[K  compiling %d of at most %d packages: %.50s", n, of, $$NF; else if (n % 100 == 1) print "  compiling " n " of at most " of " packages"; fflush(); next } \
	  { print } END { if (n) print (bar ? "\r\033[K" : "") "  compiled " n " packages" }'
endef

.PHONY: build run lint clean
build: deps ## build the commands into bin/
	$(call compile,bin/,$(COMMANDS))
	$(call compile,bin/,$(SWITCH_COMMANDS),,switch)

.PHONY: netcraq
netcraq: deps ### build bin/netcraq alone: one static file that can be copied to another machine
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/netcraq ./cmd/netcraq

# make run builds only what it starts. With the tag slim, the gateway has no etcd of its own, and the load no Redis client (bin/slim).
CHAIN_COMMANDS := controlplane/cmd/netcraq-controller nodeapi/cmd/netcraq-sidecar $(if $(KEEP),cmd/netcraqctl)
run: deps ## start a chain, query its keys, show what a busy etcd gains
	$(call compile,bin/,$(CHAIN_COMMANDS))
	$(if $(filter bmv2,$(SWITCH)),,$(call compile,bin/,cmd/netcraq-switch,,switch))
	@$(SUDO) $(PYTHON) experiments/demo.py --nodes $(NODES) --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) --profile $(PROFILE) --replay 1 --load 1 $(if $(KEYS),--keys "$(KEYS)") $(if $(KEEP),--keep)
ifndef KEEP
	@echo
	$(call compile,bin/slim/,etcd-monitor/cmd/etcd-monitor experiments/cmd/netcraq-peers experiments/cmd/netcraq-doors,-tags slim)
	@$(SUDO) $(PYTHON) experiments/gain.py --switch $(SWITCH) --engine $(ENGINE) --hook $(HOOK) --bin bin/slim
endif

lint: deps ## run the linters of Go, JavaScript, Python and prose
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')) && [ -z "$$unformatted" ] || { echo "gofmt would change, or cannot parse:" $$unformatted; exit 1; }
	@git ls-files '*.js' '*.mjs' '*.cjs' | while read -r f; do case $$f in *.cjs) type=commonjs ;; *) type=module ;; esac; \
	  node --input-type=$$type --check - <$$f || { echo "$$f: a syntax error"; exit 1; }; done
	@$(GO) vet $(PACKAGES)
	@$(GO) tool staticcheck $(PACKAGES)
	@$(GO) run ./internal/treelint
	@$(PYTHON) mk/version.py check
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .

clean: ## remove what builds and runs made
	@rm -rf bin out $(VENV) client/java/target client/java/*/target
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
