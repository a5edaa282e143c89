// Package chain is the controller's state machine for one chain. It does no input or output: it has
// no packets, no clocks and no goroutines.
//
// Inputs are methods with the time (a switch is connected, a configuration was installed, a lease
// was answered, an operator asks for a change). Outputs come from Actions, and are carried out by a
// shell (package controller) that reports back. The same inputs give the same actions, so whole
// scenarios are text files (testdata) that a person can read.
//
//	SwitchUp, SwitchDown, Installed,  ┌─────────┐   Persist, Install, Lease, Redrive,
//	LeaseReply, Propose, Recover, ... │ Machine │   Erase, Copy, InsertKeys, ...
//	────────────────────────────────▶ │         │ ────────────────────────▶  shell
//	              Tick                └─────────┘
//
// # Phases
//
// A chain is in one phase at a time (phase.go). These are the transitions; any other is an error in
// this package, and panics (Machine.enter).
//
//	from         to           when
//	discovering  persisting   the first configuration is decided, or what was found is to be changed
//	discovering  ready        what the record has, or the switches, all members have
//	discovering  installing   what the record has, not all members were known to have
//	discovering  fencing      nor was who left for it known to be fenced
//	persisting   fencing      it is durable, and somebody who leaves for it may serve yet
//	persisting   installing   it is durable, and nobody leaves for it
//	persisting   ready        what an operator asked for could not be recorded
//	fencing      installing   who left is fenced, or out of reach with its lease run out
//	installing   ready        all members have it, and nobody asked for more
//	installing   draining     all members have it, with a frozen head: the order is to be changed
//	installing   recovering   all members have it, and a switch is to be filled, or compared
//	draining     persisting   all members hold the same; or they do not: the old order, thawed
//	recovering   persisting   a stage is done; or it cannot be: the chain without the joiner
//	recovering   ready        the joiner could not be emptied: nothing has changed
//	ready        recovering   a switch is to be brought in, and is emptied first
//	ready        persisting   another configuration is asked for, or a member is lost
//	fencing      persisting   a member is lost
//	installing   persisting   a member is lost
//
// and, at any time, a switch has a later epoch than any on record: the record was an earlier one.
//
//	persisting   discovering  a later epoch is seen
//	fencing      discovering  a later epoch is seen
//	installing   discovering  a later epoch is seen
//	draining     discovering  a later epoch is seen
//	recovering   discovering  a later epoch is seen
//	ready        discovering  a later epoch is seen
//
// # The rules it keeps
//
// They are those of docs/protocol.md, "Changing a chain":
//
//   - Every configuration has an epoch, higher than any before it. It is durable (Persist) before
//     the first switch gets it.
//   - Members that leave are fenced first: they have acknowledged role NONE, or are out of reach
//     and their lease has run out on our clock, which is later than on theirs (see lease.go).
//     Without leases there is no such moment; an unreachable member is then taken to have stopped,
//     as the paper assumes.
//   - It is installed tail first, head last, one member at a time, so no write can pass a member
//     that has not got it; where the chain is frozen before or after, or a switch is brought in, in
//     fewer steps.
//   - After it, what is dirty is re-propagated (Redrive), and at intervals what stays dirty.
//   - A member that is out of reach, or answers no lease, is given up (failover.go): the chain goes
//     on without it, by the rules above.
//   - A member that has lost its registers (it was restarted) never gets a role back in a chain
//     that holds keys: the chain goes on without it. It comes back by recovery (recover.go): empty,
//     as a shadow behind the tail, filled while the chain works; then as a replica before it, which
//     writes pass and which is asked nothing, until it has what the tail had before that; then it
//     is a member. (In a chain of one it is compared with the tail while nobody takes a write, and
//     becomes the tail.) Whatever fails meanwhile, what is on record is a chain that is right
//     without it.
//   - A switch that is to be a member, and is none yet, is judged like a member, in every stage.
//     The chain waits for it no longer than for a member that has failed (joiner.go).
//   - Members that were lost are brought in again when they have been steady for a while, later
//     each time (rejoin.go, package rejoin); those that an operator has left out are not.
//   - Keys enter tail first, hidden until their first write is committed at all members, and leave
//     head first.
package chain
