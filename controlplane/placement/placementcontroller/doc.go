// Package placementcontroller keeps the hottest of etcd's keys in the network. Package policy
// decides which keys these are, and this package carries the decisions out. It runs in the
// network's leading controller.
//
//	Prometheus ─ rates of keys, by the gateways ─┐                    ┌─ the controller: adds and removes keys
//	switches ─── counters of placed keys ────────┤  once a second or  │
//	etcd ─────── values, leases, rules ──────────┴─▶ so: Planner ─────┴─▶ etcd: placed/KEY
//
// Its state is in etcd (docs/etcd.md): which keys are placed, the operator's rules, and the plan.
// The plan holds the moves that were decided but not yet carried out, and the keys that stay away.
// Every transaction requires that this controller leads. The controller can be killed between any
// two steps. Its successor makes the remaining moves, removes keys that have no entry in etcd from
// the switches, and deletes entries whose keys are not in the switches.
//
// Prometheus may be down, slow or wrong. Then placed keys do not move, except for those that must
// be removed whatever their heat.
//
// # Writers that bypass the gateways
//
// A gateway guards a placed key before it writes the key in etcd. So when etcd shows a change of a
// placed key, with the mod revision M, the key's slot is already guarded or has M or a later
// revision. The controller watches each placed key in etcd, and reads its slot after each change. A
// readable slot with an older value shows that a writer bypassed the gateways. The controller then
// removes the key from the network at once, and does not place it again for a while. Until the
// removal, clients could read stale values. That is the time that the watch, the read of the slot
// and the removal take.
package placementcontroller
