# SPDX-License-Identifier: Apache-2.0
"""Tests of the topologies, and of NetCRAQ from end to end on them."""
