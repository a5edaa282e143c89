# SPDX-License-Identifier: Apache-2.0
"""End to end: real packets through a chain of real switches that a real controller set up, on the
embedded switch and on BMv2.
"""
