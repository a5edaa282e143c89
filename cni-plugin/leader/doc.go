// Package leader ensures that at any time only one agent of a cluster runs the chains' controller
// in its process.
//
// There are two elections. A Kubernetes Lease selects the agent that campaigns. etcd, which has the
// chains' state, elects the leader. So a leader continues to lead while the API server does not
// answer for a while. A Term is the time during which an agent leads. The reconcilers (package
// kube) decide when the leader runs a controller, and what it controls.
package leader
