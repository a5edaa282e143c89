# SPDX-License-Identifier: Apache-2.0
"""``netcraq-switch`` in Mininet (:mod:`netcraq_switch.mininet`) and in p4-utils
(:mod:`netcraq_switch.p4utils`). Each module imports its lab, so it needs that lab installed.
"""
