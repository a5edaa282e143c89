// Package sim simulates a NetCRAQ network in one thread. It has switches that run the compiled P4
// program on the interpreter (switch/interp), the controller's state machine and procedures
// (controlplane/chain, chain/ops), and the client library's state machine (client/calls). The
// network and the time are simulated. All random choices follow from a seed, so a seed's run can be
// repeated. The faults are loss, duplication, reordering, frames that arrive very late, killed
// switches and controllers, switches that the controller cannot reach but clients can, two
// controllers at once, and dead clients.
//
//	          client/calls ── frames ──▶ ┌─────────┐ frames  ┌─────────┐
//	clients   (real)                    │ interp, │ ◀─────▶ │ interp, │ ...   the network: conditions, cut links, rules
//	   │                                │ P4 JSON │         │ P4 JSON │
//	   │                                └────▲────┘         └────▲────┘
//	   │                 entries, packet-out │ (a P4Runtime connection that can break)
//	   ▼                                ┌────┴──────────────────────┐
//	history ──▶ porcupine               │ shell    ◀─▶ chain, ops   │ ──▶ store (etcd)
//	            per key                 └───────────────────────────┘
//
// Each run is judged in three ways. The answers to clients must be linearizable, key by key
// (package judge). A version must have the same value for all readers, including EVENTUAL reads.
// When all faults have ended, every key must become clean at every member, and the outcome of every
// compare and swap must become known (settle.go).
//
// # Packages
//
//	sim ─▶ trouble ─▶ world ─▶ shapes ─▶ compiled
//	 │        └─────────┴────▶ judge, clockwork, coroutine, logbook, rules
//	 └───▶ mutants ─▶ judge, rules
//
// Package world has the parts of a run: switches, a network, controllers, clients. Its controllers
// change switches by the real procedures of controlplane/chain/ops, run as coroutines over
// simulated connections. Package trouble draws a seed's schedule and causes its faults. Package
// mutants removes rules, one at a time, to check that the simulator notices. This package puts the
// parts together: run.go runs a seed, settle.go ends its faults and waits until the chain is
// complete and consistent, many.go runs many seeds, hunt.go finds out how many seeds it takes to
// notice a mutant. testdata has the cases of docs/protocol.md, "Changing a chain", one by one, as
// scenarios to read.
//
// A failing seed prints the command that runs it again and shows its timeline.
package sim
