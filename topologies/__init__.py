# SPDX-License-Identifier: Apache-2.0
"""NetCRAQ chains on Mininet.

::

    chain-4.json ──p4app──▶ Topology ──network──▶ hosts, links, switches, controller
       (a file)             (checked)             (running; gone when the with-block ends)

``p4app`` reads and checks a topology file in p4-utils' form, ``addressing`` gives every interface
its address, ``network`` brings it up in Mininet, ``launch`` is the command line over it.
``ownership`` is how a run that was killed is cleaned up by the next one, and by nothing else.
"""
