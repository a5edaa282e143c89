# SPDX-License-Identifier: Apache-2.0
"""A model of NetCRAQ, NetChain and etcd at sizes that no machine here can run."""
