// Package sim is NetCRAQ in one thread and without a real network: switches that run the compiled
// P4 program on the interpreter (switch/interp), the controller's state machine and procedures
// (controlplane/chain, chain/ops) and the client library's (client/core), in a simulated network
// and time. Chance comes from a seed, so what a seed does can be seen again: loss, duplication,
// reordering, frames that come long after, killed switches and controllers, switches that the
// controller cannot reach but clients can, two controllers at once, dead clients.
//
//	          client/core ── frames ──▶ ┌─────────┐ frames  ┌─────────┐
//	clients   (real)                    │ interp, │ ◀─────▶ │ interp, │ ...   the network: conditions, cut links, rules
//	   │                                │ P4 JSON │         │ P4 JSON │
//	   │                                └────▲────┘         └────▲────┘
//	   │                 entries, packet-out │ (device.go: a P4Runtime connection that can break)
//	   ▼                                ┌────┴──────────────────────┐
//	history ──▶ porcupine               │ shell.go ◀─▶ chain, ops   │ ──▶ store (etcd)
//	            per key                 └───────────────────────────┘
//
// Each run is judged three ways. What clients were told must be linearizable, key by key
// (check.go). One version has one value, whoever reads it, EVENTUAL reads too. And when all faults
// have ended, the chain becomes whole, every key clean at every member, and every compare and swap
// is decided (run.go).
//
// # Where to look
//
// faults.go draws a seed's plan and causes its faults; world.go has the means. shell.go carries out
// what the controller's machine asks for; it is the counterpart of package controller, and the
// place to add to when the machine learns a new action. What it does to switches is what the
// controller does: the procedures of controlplane/chain/ops, run as coroutines (task.go) over
// simulated connections (target.go). client.go makes the calls. mutants.go removes rules, one at a
// time, to see that the simulator would notice. testdata has the cases of docs/protocol.md,
// "Changing a chain", one by one, as scenarios to read.
//
// A failing seed prints the command that runs it again with its timeline: who did what, when.
package sim
