// Package chain is the controller's state machine for one chain. It does no input or output: it has
// no packets, no clocks and no goroutines.
//
// Inputs are method calls that carry the time (a switch is connected, a configuration was
// installed, a lease was answered, an operator asks for a change). Outputs come from Actions, and
// are carried out by a shell (package controller) that reports back. The same inputs give the same
// actions, so whole scenarios are text files (testdata) that a person can read.
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
//	discovering  persisting   a first configuration is decided, or the one found must change
//	discovering  ready        all members have the record's configuration, or the one found
//	discovering  installing   not all members are known to have the record's configuration
//	discovering  fencing      as above, and not all switches that left are known to be fenced
//	persisting   fencing      the record is durable, and a switch that leaves may still serve
//	persisting   installing   the record is durable, and no switch leaves
//	persisting   ready        an operator's change could not be recorded
//	fencing      installing   each leaver is fenced, or is out of reach and its lease has run out
//	installing   ready        all members have it, and nothing else was requested
//	installing   draining     all members have it, with a frozen head: the order will change
//	installing   recovering   all members have it, and a switch must be filled or compared
//	draining     persisting   all members hold the same data; or draining failed: thaw the old order
//	recovering   persisting   a stage is done; or it failed: continue without the joiner
//	recovering   ready        the joiner could not be emptied: nothing has changed
//	ready        recovering   a switch is being brought in, and is emptied first
//	ready        persisting   another configuration was requested, or a member is lost
//	fencing      persisting   a member is lost
//	installing   persisting   a member is lost
//
// At any time a switch may also report a later epoch than any on record. Then the record is out of
// date:
//
//	persisting   discovering  a later epoch is seen
//	fencing      discovering  a later epoch is seen
//	installing   discovering  a later epoch is seen
//	draining     discovering  a later epoch is seen
//	recovering   discovering  a later epoch is seen
//	ready        discovering  a later epoch is seen
//
// # The rules that the machine keeps
//
// These rules are those of docs/protocol.md, "Changing a chain":
//
//   - Every configuration has an epoch, higher than any before it. It is durable (Persist) before
//     the first switch gets it.
//   - Members that leave are fenced first. A member is fenced if it has acknowledged role NONE, or
//     if it is out of reach and its lease has run out. The lease must have run out by this
//     controller's clock, which is later than by the member's clock (see lease.go). Without leases,
//     an unreachable member is assumed to have stopped, as in the paper.
//   - A configuration is installed tail first, head last, one member at a time, so no write can
//     pass a member that does not have it yet. It takes fewer steps if the chain is frozen before
//     or after, or if a switch is being brought in.
//   - Afterwards, dirty keys are re-propagated (Redrive). Keys that stay dirty are re-propagated at
//     intervals.
//   - The chain gives up a member that is out of reach or answers no lease (failover.go), and
//     continues without it, by the rules above.
//   - A member that has lost its registers (it was restarted) never gets a role back in a chain
//     that holds keys. The chain continues without this member. The member comes back by recovery
//     (recover.go). It starts empty, as a shadow after the tail, and is filled while the chain
//     works. Then it becomes a replica before the tail, which writes pass but which answers no
//     reads, until it has everything that the tail had before. Then it becomes a member. (In a
//     chain of one it is compared with the tail while the chain is frozen, and becomes the tail.)
//     Whatever fails meanwhile, the record describes a chain that is correct without it.
//   - A switch that is becoming a member has the same time limits as a member in every stage. The
//     chain waits for it no longer than for a member that has failed (joiner.go).
//   - Lost members are brought in again when they have been steady for a while, longer each time
//     (rejoin.go, package rejoin). Members that an operator has left out are not brought in.
//   - Keys are added tail first, and stay hidden until their first write is committed at all
//     members. They are removed head first.
package chain
