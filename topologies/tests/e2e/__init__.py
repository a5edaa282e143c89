# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: real packets through a chain of real switches with a real controller, on the
embedded switch and on BMv2.
"""
