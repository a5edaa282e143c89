// Package agent attaches containers to a node's switch. It is the half of the CNI plugin that has
// privileges and keeps state.
//
//	         container's namespace │ node's namespace
//	                               │
//	eth0 (address, routes) ════════╪═ ncq… ──▶ switch ──▶ filter ──▶ the host's stack ──▶ routes, other nodes
//	                        veth   │          (NetCRAQ's  (what is
//	                               │           packets)    left of them: dropped)
//
// An attachment is a pair of interfaces. Everything else belongs to the node's end, and goes with
// it: the ingress filter, the gateway's address, the route to the container. So a removal deletes
// one interface. The interface's name is derived from the names of network, container and
// interface, so the agent can find it even without a record.
//
// The agent's state is one record per attachment in a folder (store.go). The agent writes the
// record before it makes the interface and removes it last. An agent that is killed in the middle
// of an ADD finds a record in state "adding" when it starts, and undoes it. If the agent is killed
// at any other time, the next one finds everything as it was and makes the containers' interfaces
// ports again, under the same numbers. Containers do not notice, because the switch takes only
// NetCRAQ packets.
package agent
