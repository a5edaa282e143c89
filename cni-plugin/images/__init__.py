# SPDX-License-Identifier: Apache-2.0
"""The project's container images, from its Containerfiles, without a container engine (``make
images``; docs/kubernetes.md, "Images").

A Containerfile says how the programs are built and what goes into the image; both are done here
with this machine's Go, and the image is written as an archive (:mod:`images.archive`). The same
sources and the same Go give the same bytes. Each image comes with a list of its contents (SBOM,
CycloneDX), which ``cni-plugin/deploy/sbom`` reads from the programs themselves.
"""
