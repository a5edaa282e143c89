// Package agent attaches containers to the switch of a node: the half of the CNI plugin that has
// the privileges and the memory.
//
//	         container's namespace │ node's namespace
//	                               │
//	eth0 (address, routes) ════════╪═ ncq… ──▶ switch ──▶ filter ──▶ the host's stack ──▶ routes, other nodes
//	                        veth   │          (NetCRAQ's  (what is
//	                               │           packets)    left of them: dropped)
//
// An attachment is a pair of interfaces. Everything else belongs to the end that the node has, and
// goes with it: the ingress filter, the gateway's address, the route to the container. So there is
// one thing to remove. Its name is derived from the names of network, container and interface, so
// it can be found whatever else was lost.
//
// The agent's state is a record for each attachment in a folder (store.go). The record is written
// before the interface is made and removed after it. An agent that was killed in the middle of an
// ADD finds a record in state "adding" when it starts, and undoes it. One that was killed at any
// other time finds the rest as it was and makes the containers' interfaces ports again, under the
// same numbers. Containers do not notice: only NetCRAQ's packets ever came to the agent.
package agent
