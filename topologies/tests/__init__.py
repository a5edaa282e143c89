# SPDX-License-Identifier: Apache-2.0
"""Tests of the topologies, and end-to-end tests of NetCRAQ on them."""
