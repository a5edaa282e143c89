// Package controller brings a NetCRAQ network up from its topology file and keeps it running. It is
// the thin shell around the state machine of package chain.
//
//	topology file ─▶ plan (what each table should hold) ─▶ ┌────────────┐ P4Runtime  ┌─────────┐
//	                                                       │ Controller │ ─────────▶ │ switches│
//	admin API ─▶ operations ─▶ chain.Machine ─▶ actions ─▶ └────────────┘ ◀───────── └─────────┘
//	                               ▲    what happened            │        packets in and out
//	                               └─────────────────────────────┘
//
// These packages do not depend on the controller: tableplan (what switches should hold), program
// (what the P4 program offers), switches (each switch's connection and worker), saved (what
// survives the process) and observe (events and metrics). The decisions are in this package.
// backend.go and the files that follow implement the calls of the admin API (request.go, keys.go,
// move.go, unused.go, sessions.go, watches.go, operations.go, update.go). controller.go executes
// the actions of the machines. switches.go, rejoin.go, reroute.go, rolling.go, erase.go and tidy.go
// manage the switches. owner.go is the interface through which devices call the controller.
//
// One goroutine (run) owns the machines, the directory and the sessions; no other goroutine touches
// them. Slow work (P4Runtime requests, packets that expect answers) happens on other goroutines,
// which post the result to that goroutine as a function to run. Each switch has one worker, so
// writes to one switch happen in the order in which they were decided.
//
// The topology can change while the controller runs (Update). A topology becomes a network: a value
// that is replaced as a whole and is otherwise immutable, except for the routes around lost
// switches. So workers see either the old or the new network.
//
// The controller can be killed and started again at any time. It reads what the switches hold,
// compares it with what they should hold, and writes the difference, which is usually nothing. It
// uses only P4Runtime to talk to the switches.
package controller
