// Package tableplan computes what the tables of a network's switches should hold. It does nothing
// else: it has no connection, no clock and no goroutine.
//
//	topology ──▶ Plan ──▶ Base(switch)           what follows from the topology: ports, grants, routes
//	                 ├──▶ Chain(switch, conf)    one chain's configuration: entries, multicast groups
//	                 ├──▶ Watch(switch, conf)    the copies for servers that watch keys
//	                 └──▶ Entry(key)             the key_index entry of one key
//
// Package switches compares this with a switch's content, and writes the difference. The simulator
// (controlplane/sim) fills its switches by the same plan, so it checks the entries that ship.
//
// entries.go has one function for each table and action of docs/protocol.md, "Tables that the
// controller fills". groups.go gives out multicast groups, and numbering.go the numbers of
// principals and realms: both give the same ones again as long as they can, because switches change
// from one topology to the next one after the other.
package tableplan
