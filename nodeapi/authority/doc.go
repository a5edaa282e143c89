// Package authority decides what each caller of the node API may do. It identifies the caller of a
// connection; on a Unix socket it uses the kernel's credentials, and the pod whose control group
// the process is in. It determines the namespaces that a caller may use (Kubernetes' roles, a
// policy file, or the permissions of the socket's file), and the share of the node that a namespace
// may take.
//
// Pure code has files of its own: cgroup.go, names.go, policy.go, kubernetes.go, quota.go.
// peer_linux.go asks the kernel, and policyfile.go reads files.
//
// A connection belongs for its whole life to the process that called connect(2) or socketpair(2).
// If that process hands its end to another one (SCM_RIGHTS, fork), it lends its own rights, as with
// any open file; the receiver gets no further ones. When a pod has gone, all requests on its
// connections are refused, whichever process holds their ends.
package authority
