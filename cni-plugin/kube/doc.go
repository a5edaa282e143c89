// Package kube runs the node agent in a Kubernetes cluster.
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
// Run starts everything on one node, in order (run.go). To attach pods, an agent needs only its own
// Node. To make routes to other nodes' pods, it also needs the other Nodes (member.go). One agent
// leads, and package leader elects it. The leader runs the controller and package reconcilers. Each
// of the following packages has one subject, and imports only packages further down the list:
//
//	kube          one node's agent: its switch, the plugin, routes, health, the end
//	reconcilers   while this agent leads: numbers, the network, chains, events
//	podapi        the node API for this node's pods
//	leaderlink    the leader's connections to all agents: pods, admin requests, durable keys
//	adminrights   which admin API requests each caller may make
//	fastpath      which pods may send to the chains themselves
//	agentcerts    the agents' certificates
//	chainplan     decisions about chains; pure
//	netplan       the network that follows from nodes, pods and chains
//	nodeclaims    which of a node's statements about itself to trust
//	nodeview      what the API server knows of the nodes
//	apiobjects    kinds of objects, and what wakes reconcilers
//	logonce       logs a lasting error once
package kube
