# SPDX-License-Identifier: Apache-2.0
# Installs what a machine needs: Debian's packages, a Python environment, Go. Each is installed
# once. A stamp file records the installed list.

DEBIAN_PACKAGES := $(shell sed 's/\#.*//' packages.txt)
K8S_PACKAGES := $(shell sed 's/\#.*//' test/e2e/packages.txt)

# install PACKAGES: installs the packages that are missing
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

# Only files whose hash is in the project are installed. uv.lock has the hashes, and uv only exports
# them: `uv sync` would fetch each file from its address in uv.lock, which a machine with only a
# mirror of PyPI cannot reach. pip uses its configured index.
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

# sync ENVIRONMENT,GROUPS,OPTIONS: installs groups of pyproject.toml in the versions of uv.lock. If
# the environment does not exist, it is created from Debian's own Python with these options of venv.
define sync
set -e; $(get_uv); [ -x $(1)/bin/python ] || /usr/bin/python3 -m venv $(3) $(1); \
	  $(UV) export -q --frozen $(addprefix --only-group ,$(2)) -o $(1)/requirements.txt >/dev/null; \
	  $(1)/bin/python $(HASHED) -r $(1)/requirements.txt
endef

# Only Debian's own Python can import Debian's Mininet.
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

# The tools that build DuckDB's C++ and the Java client.
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
