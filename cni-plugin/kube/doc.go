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
// Each agent needs nothing but its own Node to attach pods, and the other Nodes to route to them (nodes.go). One agent leads: it gives numbers to nodes (numbers.go), which are
// the numbers of the ports by which their switches are reached, and runs the controller (leader.go, term.go), to which it says what the network is made of (network.go) and
// what the chains should be (chains.go). Who leads is decided twice: a Lease of Kubernetes says which agent tries, and etcd, where the chains' state is, says which one does.
// So an API server that does not answer for a while deposes nobody.
package kube
