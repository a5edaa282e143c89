# SPDX-License-Identifier: Apache-2.0
# Artifacts to install: images, the chart, and a whole release.

# make images REGISTRY=registry.example/netcraq TAG=1.0 IMAGES=netcraq-agent ARCH=arm64
REGISTRY ?= localhost/netcraq
TAG      ?= dev
IMAGES   ?=
ARCH     ?=

.PHONY: images images-check chart test-chart
images: deps ## build images in out/images (REGISTRY= TAG= IMAGES= ARCH=)
	@GO="$(GO)" PYTHONPATH=cni-plugin $(PYTHON) -m images --registry "$(REGISTRY)" --tag "$(TAG)" --arch "$(ARCH)" $(IMAGES)

images-check: deps ### build the images twice, and compare them byte for byte
	@GO="$(GO)" PYTHONPATH=cni-plugin $(PYTHON) -m images --registry "$(REGISTRY)" --tag "$(TAG)" --arch "$(ARCH)" --check $(IMAGES)

# Runs Helm and kustomize. make test does not: it compares the manifests' hashes with those of the
# chart.
CHARTGEN := cd cni-plugin/deploy/chartgen && GOWORK=off $(GO_ABS)

chart: deps ### write the Helm chart anew from the manifests in cni-plugin/deploy
	@$(CHARTGEN) run . -write

test-chart: deps ### test that the Helm chart makes what the manifests make
	@cd cni-plugin/deploy/chartgen && unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ]
	@$(CHARTGEN) vet .
	@$(CHARTGEN) build -o $(CURDIR)/bin/ helm.sh/helm/v3/cmd/helm
	@$(CHARTGEN) test -count 1 .
	@bin/helm lint cni-plugin/deploy/chart && bin/helm template netcraq cni-plugin/deploy/chart --kube-version 1.34.0 >/dev/null

# ---- A release, from a clean checkout (RELEASING.md) ----
.PHONY: release release-check release-try
PART ?=
release: deps ### build everything that a release has into dist/ (PART=python builds that alone)
	@$(PYTHON) mk/release/release.py --go "$(GO_ABS)" $(PART)

release-check: deps ### build it again, and compare the bytes with dist/
	@$(PYTHON) mk/release/release.py --go "$(GO_ABS)" --check $(PART)

release-try: deps ### install what make release has made, each in an empty environment; a table (BEFORE=DIR: upgrade from it)
	@$(SUDO) env PATH="$$PATH" $(PYTHON) mk/release/try.py --go "$(GO_ABS)" $(addprefix --before ,$(BEFORE))

.PHONY: api-diff
api-diff: deps ### compare what a version promises with the last release
	@$(PYTHON) mk/release/api_diff.py --go "$(GO_ABS)"
