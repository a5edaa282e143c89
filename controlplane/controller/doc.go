// Package controller brings a NetCRAQ network up from its topology file and keeps it so: the thin
// shell around the state machine of package chain.
//
//	topology file ─▶ plan (what each table should hold) ─▶ ┌────────────┐ P4Runtime  ┌─────────┐
//	                                                       │ Controller │ ─────────▶ │ switches│
//	admin API ─▶ operations ─▶ chain.Machine ─▶ actions ─▶ └────────────┘ ◀───────── └─────────┘
//	                               ▲    what happened            │        packets in and out
//	                               └─────────────────────────────┘
//
// The rooms below know nothing about the controller: tableplan (what switches should hold), program
// (what the P4 program offers), switches (each one's connection, and its worker), saved (what
// survives the process) and observe (events and metrics). What decides is here. backend.go and its
// neighbours have the calls of the admin API (request.go, keys.go, move.go, unused.go, sessions.go,
// watches.go, operations.go, update.go). controller.go carries out what the machines ask for.
// switches.go, rejoin.go, reroute.go, rolling.go, erase.go and tidy.go see to the switches.
// owner.go is the interface through which devices call the controller.
//
// One goroutine (run) owns the machines, the directory and the sessions; nothing else touches them.
// What takes time (P4Runtime requests, packets that are to be answered) happens on others, and its
// end comes back to the first as a function to run. Each switch has one worker, so what is written
// to one switch is written in the order in which it was decided.
//
// The topology can change while the controller runs (Update). What a topology makes of the world is
// a network: an immutable value, except for the ways around lost switches, that is replaced as a
// whole, so that workers see one or the next.
//
// The controller can be killed and started again at any time. It reads what the switches hold,
// compares it with what they should hold, and writes the difference, which is usually nothing. It
// knows nothing about the switches but P4Runtime.
package controller
