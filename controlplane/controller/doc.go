// Package controller brings a NetCRAQ network up from its topology file and keeps it so: the thin
// shell around the state machine of package chain.
//
//	topology file ─▶ plan (what each table should hold) ─▶ ┌────────────┐ P4Runtime  ┌─────────┐
//	                                                       │ Controller │ ─────────▶ │ switches│
//	admin API ─▶ operations ─▶ chain.Machine ─▶ actions ─▶ └────────────┘ ◀───────── └─────────┘
//	                               ▲    what happened            │        packets in and out
//	                               └─────────────────────────────┘
//
// One goroutine (run) owns the machines, the directory and the sessions; nothing else touches them.
// What takes time (P4Runtime requests, packets that are to be answered) happens on others, and its
// end comes back to the first as a function to run. Each switch has one worker, so what is written
// to one switch is written in the order in which it was decided.
//
// The topology can change while the controller runs (Update). What a topology makes of the world is
// a network: an immutable value, but for the ways around lost switches, that is replaced as a
// whole, so that workers see one or the next.
//
// The controller can be killed and started again at any time. It reads what the switches hold,
// compares it with what they should hold, and writes the difference, which is usually nothing. It
// knows nothing of the switches but P4Runtime.
package controller
