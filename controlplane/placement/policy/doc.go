// Package policy decides which of etcd's keys the network serves (docs/etcd.md), as a pure function
// of its inputs: no input or output, no clocks. The shell around it is
// controlplane/placement/placementcontroller.
//
//	how often each key is read and written ──┐   ┌─────────┐    moves: place KEY in CHAIN,
//	values: size, lease                      ├──▶│ Planner │ ─────────▶    remove KEY
//	chains: cells, free slots                │   └─────────┘    verdicts: each key's reason
//	rules of the operator, limits, time    ──┘
//
// A placed key saves etcd its reads and costs each of its writes a guard: two CAS in the network
// before and after the transaction, and readers that ask etcd meanwhile. So a key's score is its
// reads a second less WriteCost times its writes a second, and the keys with the highest scores
// ought to be placed.
//
// Moving a key has a cost, and measured rates go up and down. These rules keep keys from flapping:
//
//   - A candidate's score must be at least MinScore, and where all slots are in use, ReplaceRatio
//     times that of the key that would have to go, for AdmitAfter without a break.
//   - Who was placed stays for MinResidency, who was removed stays away for Cooldown.
//   - A bucket of moves, which fills at MovesPerMinute, limits all moves that are made for heat.
//     What is done because it must be (a key on a lease, an exclusion, a writer that bypasses the
//     gateways) does not wait for it.
//   - A key of unknown heat is neither placed nor removed, because Prometheus may be down or slow.
//
// Every key that the planner considered has a Verdict, with the numbers that led to it.
package policy
