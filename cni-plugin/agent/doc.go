// Package agent attaches containers to a node's switch. It is the part of the CNI plugin that has
// privileges and stores state.
//
//	         container's namespace │ node's namespace
//	                               │
//	eth0 (address, routes) ════════╪═ ncq… ──▶ switch ──▶ filter ──▶ the host's stack ──▶ routes, other nodes
//	                        veth   │          (NetCRAQ's  (what is
//	                               │           packets)    left of them: dropped)
//
// An attachment is a pair of interfaces. The ingress filter, the gateway's address and the route to
// the container all belong to the node's end, and disappear with it. So the agent removes an
// attachment by deleting one interface. The interface's name is derived from the names of network,
// container and interface, so the agent can find it even without a record.
//
// The agent's state is one record per attachment in a folder (store.go). The agent writes the
// record before it makes the interface and removes it last. If an agent is killed in the middle of
// an ADD, the next agent finds a record in state "adding" and undoes the attachment. If an agent is
// killed at any other time, the next agent finds everything as it was. It makes the containers'
// interfaces ports again, under the same numbers. Containers do not notice, because the switch
// takes only NetCRAQ packets.
package agent
