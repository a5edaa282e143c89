// Package leader has one agent of a cluster at a time run the chains' controller in its process.
//
// The leader is decided twice: a Lease of Kubernetes says which agent tries, and etcd, which has
// the chains' state, says which one leads. So an API server that does not answer for a while
// deposes nobody. A Term is the time for which an agent leads; the reconcilers (package kube) say
// what its controller controls, and when there is one.
package leader
