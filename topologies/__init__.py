# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ chains on Mininet.

::

    chain-4.json ──p4app──▶ Topology ──network──▶ hosts, links, switches, controller
      (a file)             (checked)             (running; gone when the with-block ends)

``p4app`` reads and checks a topology file in p4-utils' form, ``addressing`` gives every interface
its address, ``network`` starts it in Mininet, and ``launch`` is the command line. ``ownership``
lets a run clean up after a killed run, without touching anything else.
"""
