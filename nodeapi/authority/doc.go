// Package authority decides what each caller of the node API may do. It identifies the caller of a
// connection. On a Unix socket it uses the credentials from the kernel, and finds the pod by the
// control group of the process. It then determines which namespaces the caller may use. Kubernetes
// roles, a policy file, or the permissions of the socket's file decide this. It also determines
// which share of the node a namespace may use.
//
// The files cgroup.go, names.go, policy.go, kubernetes.go and quota.go make no system calls. The
// file peer_linux.go asks the kernel, and policyfile.go reads files.
//
// A connection belongs for its whole life to the process that called connect(2) or socketpair(2).
// If that process passes the connection to another process (SCM_RIGHTS, fork), the receiver can use
// the rights of the first process, as with any open file. The receiver gets no further rights. When
// a pod has ended, all requests on its connections are refused, whichever process holds them.
package authority
