package memory

// The engine's own data about a packet, at the PHV's start.
const (
	PHVLen    = 0  // 4 bytes: the frame's current length
	PHVHead   = 4  // 4 bytes: bytes of the frame that are headers
	PHVPort   = 8  // 4 bytes: the ingress port
	PHVInLen  = 12 // 4 bytes: the frame's length as received
	PHVAsked  = 16 // 8 bytes: 1 if the packet has read the time; see emit/clock.go
	PHVGroup  = 24 // 8 bytes: the multicast group's word
	PHVHit    = 32 // 1 byte
	PHVLocked = 33 // 1 byte
	PHVAction = 34 // 2 bytes: 1 + the index of the action that a table has chosen
	// 4 bytes: packet_length in egress: as received, plus or minus the headers that the program has
	// added and removed since
	PHVLength = 36
	PHVSpill  = 40 // 8 bytes: see emit.WidenBounds
	// 8 bytes: the control plane's epoch before the packet's first lookup
	PHVEpoch   = 48
	PHVCPU     = 56 // 8 bytes: the CPU whose counter copies the packet uses
	PHVVersion = 64 // 8 bytes: the registers' version when the packet began to read them
	phvFields  = 72
)
