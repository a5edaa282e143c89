package memory

// The engine's own data about a packet, at the beginning of the PHV.
const (
	PHVLen    = 0  // 4 bytes: the frame's current length
	PHVHead   = 4  // 4 bytes: the number of bytes of the frame that are headers
	PHVPort   = 8  // 4 bytes: the ingress port
	PHVInLen  = 12 // 4 bytes: the frame's length as received
	PHVAsked  = 16 // 8 bytes: 1 if the packet has read the time; see emit/clock.go
	PHVGroup  = 24 // 8 bytes: the word of the packet's multicast group
	PHVHit    = 32 // 1 byte: whether the packet has hit the last table
	PHVLocked = 33 // 1 byte: which locks the packet holds
	PHVAction = 34 // 2 bytes: 1 + the index of the action that a table lookup has selected
	// 4 bytes: packet_length in egress, which is the received length, plus added headers, minus
	// removed headers
	PHVLength = 36
	PHVSpill  = 40 // 8 bytes: scratch space for emit.WidenBounds
	// 8 bytes: the control plane's epoch before the packet's first lookup
	PHVEpoch   = 48
	PHVCPU     = 56 // 8 bytes: the CPU to whose counter copies the packet adds
	PHVVersion = 64 // 8 bytes: the registers' version when the packet began to read them
	phvFields  = 72
)
