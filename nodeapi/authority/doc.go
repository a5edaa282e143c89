// Package authority decides who may do what at the node API. It identifies the caller of a
// connection; at a Unix socket it uses the kernel's credentials, and the pod whose control group
// the process is in. It knows the namespaces that a caller may use (Kubernetes' roles, a policy
// file, or the permissions of the socket's file), and the share of the node that a namespace may
// take.
//
// What is pure has files of its own: cgroup.go, names.go, policy.go, kubernetes.go, quota.go. What
// asks the kernel is in peer_linux.go, what reads files in policyfile.go.
//
// What holds of a connection: it is its whole life that of whoever called connect(2), or
// socketpair(2). A process that hands its end to another (SCM_RIGHTS, fork) lends it what it may
// itself, as with any open file; it cannot get by this what it may not. A pod's connections are
// refused everything from when the pod has gone, in whose hands ever their ends are.
package authority
