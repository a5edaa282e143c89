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

# Nothing is installed whose hash is not in the project. uv.lock has the hashes, and uv only reads it:
# `uv sync` would fetch each file from the address in uv.lock, which a machine that has only a
# mirror of PyPI cannot reach. pip takes the files from the index that pip is set up with, or uv.
INDEX := $(or $(UV_DEFAULT_INDEX),$(UV_INDEX_URL))
ifneq ($(INDEX),)
export PIP_INDEX_URL ?= $(INDEX)
endif
UV := out/uv/bin/uv
PIP_INSTALL := -m pip install -q --disable-pip-version-check
HASHED := $(PIP_INSTALL) --require-hashes

define get_uv
[ $(UV) -nt requirements-uv.txt ] || { rm -rf out/uv; /usr/bin/python3 -m venv out/uv; \
	  out/uv/bin/python $(HASHED) -r requirements-uv.txt; touch $(UV); }
endef

# sync ENVIRONMENT,GROUPS,OPTIONS: installs groups of pyproject.toml, as uv.lock has them, in an environment of Debian's
# own Python, which it makes with these options of venv if there is none
define sync
set -e; $(get_uv); [ -x $(1)/bin/python ] || /usr/bin/python3 -m venv $(3) $(1); \
	  $(UV) export -q --frozen $(addprefix --only-group ,$(2)) -o $(1)/requirements.txt >/dev/null; \
	  $(1)/bin/python $(HASHED) -r $(1)/requirements.txt
endef

# Debian's own Python is the only one that sees Debian's Mininet.
$(VENV)/.requirements: $(VENV)/.packages uv.lock requirements-uv.txt client/python/pyproject.toml
	@echo "installing the Python packages of uv.lock into $(VENV)"
	@$(call sync,$(VENV),dev $(if $(filter go,$(GO)),,go),--system-site-packages)
	@$(PYTHON) $(PIP_INSTALL) --no-deps --no-build-isolation -e client/python
	@touch $@

lock: ### write uv.lock and requirements-uv.txt anew, with the hashes of all files
	@set -e; $(get_uv); env -u UV_DEFAULT_INDEX -u UV_INDEX_URL $(UV) lock -q --upgrade --default-index https://pypi.org/simple; \
	  { echo "# make lock writes this file, by which make deps installs uv."; \
	    $(UV) export -q --frozen --no-header --only-group uv; } > out/requirements-uv.txt; \
	  cmp -s out/requirements-uv.txt requirements-uv.txt || cp out/requirements-uv.txt requirements-uv.txt

deps-k8s: deps $(VENV)/.packages-k8s ### install what make e2e-k8s needs besides (containerd, runc, ...)

# What DuckDB's C++ and the Java client are built with.
MODULE_PACKAGES := g++ openjdk-17-jdk-headless maven

$(VENV)/.packages-modules: mk/deps.mk $(VENV)/.packages
	@$(call install,$(MODULE_PACKAGES))
	@touch $@

$(VENV)/.packages-k8s: test/e2e/packages.txt $(VENV)/.packages
	@$(call install,$(K8S_PACKAGES))
	@touch $@

$(VENV)/.requirements-arrow: $(VENV)/.requirements
	@$(call sync,$(VENV),arrow)
	@touch $@
