// Package paths follows packets through a program's ingress pipeline and lists their steps
// ([Find]), with what is known about the packet at each. The list has no steps for decisions with a
// known result, and it marks stores that are never read again as dead. Compilers call that jump
// threading and partial evaluation; find.go says how it is bounded.
//
// The steps also say which of them need exclusive use of the registers (order.go), by which numbers
// a packet selects registers (needs.go), and where it may read them without a lock (unlocked.go).
// All of that is data. Package control writes the instructions.
package paths
