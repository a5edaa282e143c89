// Package tableplan computes what the tables of a network's switches should hold. It uses no
// connection, no clock and no goroutine.
//
//	topology ──▶ Plan ──▶ Base(switch)           what follows from the topology: ports, grants, routes
//	                 ├──▶ Chain(switch, conf)    one chain's configuration: entries, multicast groups
//	                 ├──▶ Watch(switch, conf)    the copies for servers that watch keys
//	                 └──▶ Entry(key)             the key_index entry of one key
//
// Package switches compares this with a switch's content, and writes the difference. The simulator
// (controlplane/sim) fills its switches from the same plan, so it checks the entries of the shipped
// controller.
//
// entries.go has one function for each table and action of docs/protocol.md, "Tables that the
// controller fills". groups.go allocates multicast groups, and numbering.go allocates the numbers
// of principals and realms. Both keep allocations stable for as long as they can, because switches
// change to a new topology one after the other.
package tableplan
