// Package policy decides which of etcd's keys the network serves (docs/etcd.md). It is a pure
// function of its arguments: it does no input or output and uses no clock. Package
// placementcontroller (controlplane/placement) calls it and carries the decisions out.
//
//	how often each key is read and written ──┐   ┌─────────┐    moves: place KEY in CHAIN,
//	values: size, lease                      ├──▶│ Planner │ ─────────▶    remove KEY
//	chains: cells, free slots                │   └─────────┘    verdicts: each key's reason
//	rules of the operator, limits, time    ──┘
//
// A placed key saves etcd its reads. Each of its writes needs a guard: a CAS in the network before
// the transaction and another one after it. Between the two, readers ask etcd. So a key's score is
// its reads per second less WriteCost times its writes per second, and the keys with the highest
// scores should be placed.
//
// Moving a key has a cost, and measured rates go up and down. These rules keep keys from flapping:
//
//   - A candidate's score must be at least MinScore for AdmitAfter without a break. If all slots
//     are in use, it must also be ReplaceRatio times the score of the key that it would replace.
//   - A placed key stays for MinResidency, and a removed key stays away for Cooldown.
//   - A budget of moves, which refills at MovesPerMinute, limits the moves that are made because of
//     heat. Moves that are necessary (for a key on a lease, an exclusion, or a writer that bypasses
//     the gateways) do not wait for it.
//   - A key of unknown heat is neither placed nor removed, because Prometheus may be down or slow.
//
// The planner gives every key that it considered a Verdict, with the numbers that led to it.
package policy
