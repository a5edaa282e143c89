# SPDX-License-Identifier: Apache-2.0
"""Build the project's container images from its Containerfiles, without a container engine (``make
images``; docs/kubernetes.md, "Images").

A Containerfile says how to build the programs and what goes into the image. This package does both
with this machine's Go, and writes the image as an archive (:mod:`images.archive`). The same sources
and the same Go give the same bytes. Each image comes with an SBOM (CycloneDX), which
``cni-plugin/deploy/sbom`` reads from the programs themselves.
"""
