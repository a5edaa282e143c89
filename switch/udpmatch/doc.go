// Package udpmatch is eBPF code, in C (udpmatch.h), that tells the IPv4 packets of some UDP ports
// from everything else. No packet can be wrapped in a way that the code does not see through and
// the kernel, or a P4 program, does.
//
//	                   of the ports, untagged, whole, without options ─────────▶ Plain
//	frame ──▶ IPv4? ──┤ of the ports, but tagged, a first fragment, with options ──▶ Drop
//	                  │ UDP that is too short to tell, more tags than MAX_TAGS ────▶ Drop
//	                   all else ───────────────────────────────────────────────▶ Pass
//
// Linux removes 802.1Q and 802.1ad tags one after the other as long as they are priority tags (VLAN
// 0), whatever their number, and routes the packet inside. A program at tc sees the first tag in
// the frame's metadata, and the others in the frame. So the code looks behind such tags.
//
// Fragments: without a first fragment there is no packet, and each first fragment shows the ports,
// since a fragment with more after it has at least 8 bytes (RFC 791) and the ports are the first
// 4. A second first fragment that overlaps shows its own. So the matcher ignores later fragments,
// which have no ports.
//
// It imports nothing of this project.
package udpmatch
