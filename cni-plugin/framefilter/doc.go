// Package framefilter drops frames of pods whose metadata asks the kernel for a change that their
// headers do not justify.
//
// A frame can carry work for later: a checksum to finish, and segments to split it into. The kernel
// or the network card does that work when the frame leaves the node, after every check has looked
// at it. A sender with CAP_NET_RAW chooses both by the header that PACKET_VNET_HDR puts before a
// frame, so without this filter it could be checked as one packet and leave as another.
//
//	          checksum to finish? ── not at the checksum of the TCP, UDP or SCTP in it ──▶ dropped
//	frame ──▶ segments to split?  ── headers say another length than the frame's ────────▶ dropped
//	          otherwise ─────────────────────────────────────────────────────────────────▶ the next program
//
// The program stands at the head of an interface's tcx programs, before the switch's. It stays when
// the agent ends, like the ingress filter of package ingressfilter.
//
// The start of a checksum is only in the kernel's own struct sk_buff. The program reads it by the
// kernel function bpf_cast_to_kern_ctx, which the kernel allows only to programs under the GPL. So
// the licence of frames.c is BSD or GPL. [Supported] says whether this kernel has what is needed:
// tcx (Linux 6.6) and BTF. On other kernels the agent makes the pod's own interface finish each
// frame before it reaches the node ([FinishAtSource]).
//
// # Limits
//
// A frame whose unfinished checksum is inside a tunnel that begins in the pod is dropped, because
// the node may unwrap it. Pods that run such tunnels turn the offload off: "ethtool -K eth0 tx
// off".
package framefilter
