package memory

// The process runs a packet-out through the program at tc by BPF_PROG_TEST_RUN, which accepts
// frames of 15 to about 3,700 bytes (one page). So the packet-out itself is in a map. The program
// extends the frame on which it runs to the packet-out's length, and copies the packet-out into the
// frame.
const (
	PacketOutLength = 0 // 8 bytes: length of the packet-out; 0 if there is none
	PacketOutFrame  = 8
	PacketOutMax    = 16000 // a little less than the kernel's limit for a frame at tc
	PacketOutSize   = PacketOutFrame + PacketOutMax
	PacketOutLeast  = 14 // the size of an Ethernet header
)

// Loopback is the index of the loopback interface in every network namespace. It is never a port.
// The kernel runs packet-outs there.
const Loopback = 1

// Offsets in the value of the map "ports", which outlives pipelines.
const (
	MaxIfindex     = 1 << 18
	PortsByIfindex = 0       // 4 bytes each: 1 + port number; 0 if the interface is not a port
	MaxPorts       = 1 << 16 //
	// 4 bytes each: the interface of a port; 0 if there is no such port
	PortsIfindex = 4 * MaxIfindex
	// 4 bytes each: the port's interface if the interface accepts frames from XDP, otherwise 0
	PortsXDP    = PortsIfindex + 4*MaxPorts
	PortsPassed = PortsXDP + 4*MaxPorts // 8 bytes: number of frames that XDP has passed to tc
	// 8 bytes: number of frames from XDP that tc could not continue
	PortsLost = PortsPassed + 8
	// 8 bytes: the number of the pipeline whose programs are being replaced, or 0 if no pipeline is
	PortsPrevious = PortsLost + 8
	// 4 bytes: the interface of some port, 0 if there is none
	PortsAny = PortsPrevious + 8
	// 4 bytes each: the number of packets that wait at the port, at the last count
	PortsDepth = PortsAny + 8
	PortsSize  = PortsDepth + 4*MaxPorts
)

// Prefix of a frame in the tap's ring: the port and the direction (4 bytes each), and the time on
// the clock of package clock (8 bytes).
const (
	TapHeader = 16
	TapIn     = 0
	TapOut    = 1
)

// BufferSize is the size of the longest frame that can go to the controller, or whose headers can
// change in size at tc.
const BufferSize = 16 << 10

// Buffers is the number of buffers for each CPU. Buffer 0 is for frames and payloads that are moved
// immediately. BufferOfTail is for the part that is cut off a frame while a copy leaves.
const (
	Buffers      = 2
	BufferOfTail = 1
)

// Layout of a slot in the ring that XDP and tc share: the slot's number, its kind (what tc must
// do), and the PHV.
const (
	// ResumeSlots is large enough: a NAPI poll handles 64 frames, and tc sees each frame before its
	// CPU polls the next frame.
	ResumeSlots = 512

	// 8 bytes: the run number under which the slot was filled; 0 if the slot is free; -1 while it
	// is being filled or emptied
	SlotNumber = 0
	SlotKind   = 8 // 4 bytes: what tc must do with the packet
	SlotPHV    = 16
)

// SlotStride returns the distance between slots in bytes.
func (p *Plan) SlotStride() int { return (SlotPHV + p.PHVBytes + 63) &^ 63 }
