// Package switches is the controller's side of the connection to each switch: a P4Runtime client,
// one worker that writes through it, and the known content of the switch.
//
//	               Plan, Watches, Leases
//	 ┌───────┐ ◀──────────────────────── ┌───────┐
//	 │Device │ ── Connection, SetUp, ──▶ │ Owner │   the controller; calls by way of Post run on
//	 └───┬───┘    LeaseReply, Event      └───┬───┘   its goroutine
//	     │ ◀──────── Submit(job) ────────────┘
//	     ▼ one job after the other
//	P4Runtime: tables, groups, registers, packets in and out
//
// A device executes its jobs in the order in which they were submitted (worker.go). It compares the
// plan with the content of the switch, and writes only the difference. So it remembers that content
// (contents.go) and reads it again in each connection. It trusts nothing from an earlier
// connection, because the switch may have been restarted between the two.
//
// setup.go prepares a newly connected switch. install.go installs a switch's part of a chain's
// configuration, in an order in which no packet is handled wrongly meanwhile. keys.go, watches.go
// and refresh.go update the entries that depend on keys, watches and routes. program.go handles
// switches that run an earlier or later program for now. requests.go and target.go exchange packets
// with a switch's pipeline, for the procedures of package chain/ops.
//
// A device decides nothing about chains. The controller's goroutine makes these decisions, and the
// device calls it only through Owner.
package switches
