// Package authority says who may do what at the node API: who is behind a connection (of a Unix
// socket: what the kernel says of who connected, and the pod whose control group that process is
// in), which namespaces a caller may use (Kubernetes' roles, a policy file, or the permissions of
// the socket's file), and how much of the node a namespace may take.
//
// What is pure has files of its own: cgroup.go, names.go, policy.go, kubernetes.go, quota.go. What
// asks the kernel is in peer_linux.go, what reads files in policyfile.go.
//
// What holds of a connection: it is its whole life that of whoever called connect(2), or
// socketpair(2). A process that hands its end to another (SCM_RIGHTS, fork) lends it what it may
// itself, as with any open file; it cannot get by this what it may not. A pod's connections are
// refused everything from when the pod has gone, in whose hands ever their ends are.
package authority
