// Package leader has one agent of a cluster at a time run the chains' controller in its process.
//
// Who leads is decided twice: a Lease of Kubernetes says which agent tries, and etcd, where the
// chains' state is, says which one does. So an API server that does not answer for a while deposes
// nobody. A Term is the time for which an agent leads; what its controller is to control, and when
// there is one, the reconcilers say (package kube).
package leader
