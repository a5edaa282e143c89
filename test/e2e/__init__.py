# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of three nodes on one machine, with the tests of NetCRAQ in it (``make
e2e-k8s``; docs/kubernetes.md).

Nothing comes from an image registry: the Kubernetes commands, etcd and CoreDNS are built from their
published Go modules (:mod:`e2e.binaries`), images are written from static binaries
(:mod:`e2e.cluster_images`), and containerd and runc are Debian's. A node is a set of namespaces
(:mod:`e2e.node`), so killing its first process is a power cut. The nodes share a bridge
(:mod:`e2e.lan`). The whole cluster ends with the command that started it, however that ends.
"""
