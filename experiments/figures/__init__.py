# SPDX-License-Identifier: Apache-2.0
"""The evaluation: NetCRAQ against NetChain, figure by figure (``make compare``).

``systems`` brings either system up on the same switches and links and puts the same load on it;
``definitions`` says what each figure asks; ``store`` keeps every measurement, so that a run that
was interrupted continues; ``plots`` and ``report`` show them.
"""
