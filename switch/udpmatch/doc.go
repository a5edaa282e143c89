// Package udpmatch is eBPF code, in C (udpmatch.h), that recognizes the IPv4 packets of some UDP
// ports. If the kernel or a P4 program can find such a packet inside an encapsulation, so can this
// code.
//
//	                   of the ports, untagged, whole, without options ─────────▶ Plain
//	frame ──▶ IPv4? ──┤ of the ports, but tagged, a first fragment, with options ──▶ Drop
//	                  │ UDP that is too short to tell, more tags than MAX_TAGS ────▶ Drop
//	                   others ─────────────────────────────────────────────────▶ Pass
//
// Linux removes 802.1Q and 802.1ad tags one after the other as long as they are priority tags (VLAN
// 0), however many there are, and routes the inner packet. A program at tc sees the first tag in
// the frame's metadata, and the others in the frame. So the code skips such tags.
//
// A fragmented packet needs a first fragment. Each first fragment contains the ports, because a
// fragment that is followed by others has at least 8 bytes (RFC 791), and the ports are in the
// first 4. A second, overlapping first fragment contains ports of its own. So the code ignores
// later fragments, which have no ports.
//
// It imports no other package of this project.
package udpmatch
