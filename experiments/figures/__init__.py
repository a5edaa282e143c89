# SPDX-License-Identifier: Apache-2.0
"""The evaluation: NetCRAQ against NetChain, figure by figure (``make compare``).

``systems`` brings up either system on the same switches and links and puts the same load on it;
``definitions`` defines the figures; ``store`` keeps every measurement, so that an interrupted run
can continue; ``plots`` and ``report`` show them.
"""
