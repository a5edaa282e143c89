package memory

// A packet-out is run through the program at tc by BPF_PROG_TEST_RUN, which takes frames of 15 to
// about 3,700 bytes (one page). So the packet-out lies in a map. The program extends the frame on
// which it is run to the packet-out's length, and copies the packet-out into it.
const (
	PacketOutLength = 0 // 8 bytes; length of the packet-out; 0: there is none
	PacketOutFrame  = 8
	PacketOutMax    = 16000 // the limit to which the kernel lets a frame grow at tc, less a little
	PacketOutSize   = PacketOutFrame + PacketOutMax
	PacketOutLeast  = 14 // an Ethernet header
)

// Loopback is the index of the loopback interface, in every network namespace. It is never a port;
// packet-outs are run there.
const Loopback = 1

// Offsets in the value of the map "ports", which outlives pipelines.
const (
	MaxIfindex     = 1 << 18
	PortsByIfindex = 0       // 4 bytes each: 1 + port number; 0: not a port
	MaxPorts       = 1 << 16 //
	// 4 bytes each: the interface of a port; 0: no such port
	PortsIfindex = 4 * MaxIfindex
	// 4 bytes each: the port's interface if it accepts frames from XDP, otherwise 0
	PortsXDP    = PortsIfindex + 4*MaxPorts
	PortsPassed = PortsXDP + 4*MaxPorts // 8 bytes: frames that XDP has passed to tc
	PortsLost   = PortsPassed + 8       // 8 bytes: frames passed by XDP that tc could not continue
	// 8 bytes: the number of the pipeline whose programs are being replaced, 0 if none is
	PortsPrevious = PortsLost + 8
	// 4 bytes: the interface of some port, 0 if there is none
	PortsAny = PortsPrevious + 8
	// 4 bytes each: the number of packets that wait to be sent by the port, at the last count
	PortsDepth = PortsAny + 8
	PortsSize  = PortsDepth + 4*MaxPorts
)

// Prefix of a frame in the tap's ring: the port and the direction, 4 bytes each, and the clock
// (package clock), 8 bytes.
const (
	TapHeader = 16
	TapIn     = 0
	TapOut    = 1
)

// BufferSize is the longest frame that can go to the controller, or whose headers can change in
// size at tc.
const BufferSize = 16 << 10

// Buffers is the number of buffers for each CPU: buffer 0 is for frames and payloads that are moved
// immediately, and BufferOfTail for the part that is cut off while a copy leaves.
const (
	Buffers      = 2
	BufferOfTail = 1
)

// A slot of the ring that XDP and tc share: its number, what to do, and the PHV.
const (
	// enough: a NAPI poll takes 64 frames, and tc sees each frame before its CPU polls the next one
	ResumeSlots = 512

	// 8 bytes: the run number under which the slot was filled; 0 if the slot is free; -1 while it
	// is being filled or emptied
	SlotNumber = 0
	SlotKind   = 8 // 4 bytes
	SlotPHV    = 16
)

// SlotStride is the distance between slots, in bytes.
func (p *Plan) SlotStride() int { return (SlotPHV + p.PHVBytes + 63) &^ 63 }
