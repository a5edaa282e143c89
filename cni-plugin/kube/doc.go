// Package kube is the node agent's life in a Kubernetes cluster.
//
//	          ┌──────────────────────────── API server ───────────────────────────┐
//	          │ Node (addresses, prefixes)   NetcraqNode (numbers)   NetcraqChain │
//	          └──────┬──────────────────────────▲──────────────────────▲──────────┘
//	each agent reads │                          │ status               │ status
//	          ┌──────▼──────┐            ┌──────┴──────┐       ┌───────┴───────┐
//	          │ routes and  │            │ the node's  │◀─TLS──│ the leader's  │── etcd
//	          │ tunnels     │            │ switch,pods │       │ controller    │
//	          └─────────────┘            └─────────────┘       └───────────────┘
//
// Each agent needs nothing but its own Node to attach pods, and the other Nodes to route to them
// (member.go). One agent leads, as package leader decides, and runs the controller. Its reconcilers
// (operator.go) give numbers to nodes (node_index.go), which are the ports by which their switches
// are reached, tell the controller what the network is made of (network_reconciler.go, network.go),
// bring chains to what their resources ask for (chains.go, membership_reconciler.go), and say there
// how they are (chain_reconciler.go).
package kube
