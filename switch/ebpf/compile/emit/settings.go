package emit

import (
	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
)

// Hook is the place in the kernel where a program runs.
type Hook int

// The hooks: a traffic control filter (tc), and the driver (XDP).
const (
	TC Hook = iota
	XDP
)

// String returns the hook's name.
func (h Hook) String() string { return [...]string{"tc", "xdp"}[h] }

// Maps has the file descriptors of the maps that a program uses, and related settings.
type Maps struct {
	PHV, State, Ports, PacketIn, PacketOut, Buffer int

	Lookups map[int]int // file descriptors of hash tables and tries, by Table.Index
	// Known has the content of tables, by Table.Index. Comparisons replace the maps of these
	// tables.
	Known map[int]known.Table
	// Paths selects compiling ingress path by path (package paths).
	Paths   bool
	Digests int // file descriptor of the ring for digests, if the program sends digests
	// Messages is the file descriptor of the ring for the program's log messages, if it has any.
	Messages int
	// Tap, if not 0, is the file descriptor of the ring that receives a copy of each frame that
	// arrives or leaves.
	Tap int

	// Resume, if not 0, is the map of slots between XDP and tc. Magic is the switch's magic number,
	// and Number the pipeline's number: see delivery/xdp_to_tc.go.
	Resume        int
	Magic, Number uint64

	// Replay, if not 0, is a map for a program that runs repeatedly on one frame. Each run first
	// sets the frame to the ReplayBytes bytes in the map. It also increments the four-byte numbers
	// at ReplayCounts and sets the parts of the state in ReplayZeros to 0.
	Replay, ReplayBytes int
	ReplayCounts        []int
	ReplayZeros         []StatePart

	// Timing, if not nil, makes the program measurable in parts.
	Timing *TimingMarks
}

// StatePart is a part of the state: 1, 2, 4 or 8 bytes at an offset.
type StatePart struct{ Off, Size int }

// Settings are the inputs of compilation other than the program, the hook and the maps.
type Settings struct {
	CPUPort  uint32     // the port for frames to and from the controller; 0 for none
	DropPort uint32     // the value of egress_spec that drops a packet
	OnlyUDP  uint16     // the one UDP port whose packets the program receives; 0 for all frames
	Mark     uint32     // mark of frames that are sent at tc; 0 leaves their mark unchanged
	Started  clock.Time // the time at which the switch's clock was 0
	// Frames go into the ring instead of being sent. The 4-byte number of the port precedes each
	// frame.
	Captured bool
	Unlocked bool // packets take no lock
	// For tests. Packets that read registers without the lock always read a wrong value. They
	// always find afterwards that the registers have been written meanwhile.
	Overtaken bool
	// For tests. The kernel's verifier refuses programs that are compiled path by path.
	Refused bool
}
