// Package paths follows packets through a program's ingress pipeline and lists their steps
// ([Find]), with the facts that are known about the packet at each step. The list has no steps for
// decisions whose result is known. It marks stores that no later step reads as dead. Compilers call
// these techniques jump threading and partial evaluation. find.go says how the number of steps is
// bounded.
//
// The steps also say which of them need exclusive use of the registers (order.go), by which numbers
// a packet selects registers (needs.go), and where it may read registers without a lock
// (unlocked.go). All of this is data. Package control emits the instructions.
package paths
