// Package leader makes one agent of a cluster at a time run the chains' controller in its process.
//
// Two elections decide. A Kubernetes Lease selects the agent that campaigns, and etcd, which has
// the chains' state, elects the leader. So an API server that does not answer for a while deposes
// no leader. A Term is the time for which an agent leads. The reconcilers (package kube) decide
// what its controller controls, and when there is one.
package leader
