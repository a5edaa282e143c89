// Package framefilter drops frames of pods whose metadata asks the kernel for a change that their
// headers do not justify.
//
// A frame's metadata can defer work: a checksum to finish, and segments to split the frame into.
// The kernel or the network card does that work when the frame leaves the node, after all checks. A
// sender with CAP_NET_RAW can choose both of them, in the header that PACKET_VNET_HDR puts before a
// frame. Without this filter a frame could pass the checks as one packet and leave as another.
//
//	          checksum to finish? ── not at the checksum of the TCP, UDP or SCTP in it ──▶ dropped
//	frame ──▶ segments to split?  ── headers say another length than the frame's ────────▶ dropped
//	          otherwise ─────────────────────────────────────────────────────────────────▶ the next program
//
// The program stands at the head of an interface's tcx programs, before the switch's. It stays when
// the agent ends, like the ingress filter of package ingressfilter.
//
// Only the kernel's own struct sk_buff has the position of an unfinished checksum. The program
// reads it by the kernel function bpf_cast_to_kern_ctx, which the kernel allows only to programs
// under the GPL. So the licence of frames.c is BSD or GPL. [Supported] reports whether this kernel
// has the required features: tcx (Linux 6.6) and BTF. On other kernels the agent makes the pod's
// own interface finish each frame before it reaches the node ([FinishAtSource]).
//
// # Limits
//
// If a tunnel begins in the pod, a frame's unfinished checksum may be inside the tunnel. The filter
// drops such a frame, because the node may unwrap it. Pods that run such tunnels must turn the
// offload off: "ethtool -K eth0 tx off".
package framefilter
