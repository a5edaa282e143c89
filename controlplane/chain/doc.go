// Package chain is what the controller knows and decides about one chain, as a state machine without input or output: no packets, no clocks, no
// goroutines.
//
// What happens goes in by methods that take the time (a switch is connected, a configuration was installed, a lease was answered, an operator asks
// for a change); what is to be done comes out of Actions, and is carried out by a shell (package controller) that reports back. The same inputs give
// the same actions, so whole scenarios stand in text files (testdata) that a person can read.
//
//	SwitchUp, SwitchDown, Installed,  ┌─────────┐   Persist, Install, Lease, Redrive,
//	LeaseReply, Propose, Recover, ... │ Machine │   Erase, Copy, InsertKeys, ...
//	────────────────────────────────▶ │         │ ────────────────────────▶  shell
//	              Tick                └─────────┘
//
// # The rules it keeps
//
// They are those of docs/protocol.md, "Changing a chain":
//
//   - Every configuration has an epoch, higher than any before it. It is durable (Persist) before the first switch gets it.
//   - Members that leave are fenced first: they have acknowledged role NONE, or are out of reach and their lease has run out on our clock, which is later
//     than on theirs (see lease.go). Without leases there is no such moment; an unreachable member is then taken to have stopped, as the paper assumes.
//   - It is installed tail first, head last, one member at a time, so no write can pass a member that has not got it; where the chain is frozen before or after,
//     in fewer steps.
//   - After it, what is dirty is re-propagated (Redrive), and at intervals what stays dirty.
//   - A member that is out of reach, or answers no lease, is given up (failover.go): the chain goes on without it, by the rules above.
//   - A member that has lost its registers (it was restarted) never gets a role back in a chain that holds keys: the chain goes on without it. It comes back by
//     recovery (recover.go): empty, as a shadow behind the tail, filled while the chain works; then compared with the tail while nobody takes a write; then
//     it is the tail. Whatever fails meanwhile, what is on record is a chain that is right without it.
//   - Keys enter tail first and leave head first.
package chain
