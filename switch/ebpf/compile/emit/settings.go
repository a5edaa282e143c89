package emit

import (
	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
)

// Hook is where in the kernel a program runs.
type Hook int

// The hooks: a filter of traffic control, and the driver.
const (
	TC Hook = iota
	XDP
)

// String is the hook's name.
func (h Hook) String() string { return [...]string{"tc", "xdp"}[h] }

// Maps are the maps that a program uses, as file descriptors.
type Maps struct {
	PHV, State, Ports, PacketIn, PacketOut, Buffer int

	Lookups map[int]int // by Table.Index: hash tables and tries
	// by Table.Index: content of tables, for which comparisons replace a map
	Known map[int]known.Table
	// Paths selects compilation of ingress by its paths (package paths).
	Paths   bool
	Digests int // the ring for digests, if the program sends any
	// Messages is the ring for the program's messages, if it has any.
	Messages int
	// Tap, if not 0, is the ring to which each frame is copied as it comes and as it goes.
	Tap int

	// Resume, if not 0, is the map of slots between XDP and tc. Magic is the switch's magic number,
	// and Number the pipeline's number: see delivery/xdp_to_tc.go.
	Resume        int
	Magic, Number uint64

	// Replay, if not 0, is a map for a program that runs repeatedly on one frame. Each run first
	// sets the frame to the map's ReplayBytes bytes. The four-byte numbers at ReplayCounts are
	// incremented each time, and the parts of the state in ReplayZeros are set to 0.
	Replay, ReplayBytes int
	ReplayCounts        []int
	ReplayZeros         []StatePart

	// Timing, if not nil, makes a program that is measured in parts.
	Timing *TimingMarks
}

// StatePart is a part of the state: 1, 2, 4 or 8 bytes at an offset.
type StatePart struct{ Off, Size int }

// Settings are the inputs of compilation besides the hook.
type Settings struct {
	CPUPort  uint32     // the port whose frames go to and come from the controller; 0 for none
	DropPort uint32     // value of egress_spec that drops a packet
	OnlyUDP  uint16     // the one UDP port whose packets the program gets; 0: it gets all frames
	Mark     uint32     // mark of frames that are sent at tc; 0: they keep theirs
	Started  clock.Time // time of the switch's clock 0
	// frames are not sent but go into the ring, each after its port's number (4 bytes)
	Captured bool
	Unlocked bool // packets take no lock
	// For tests: packets that read registers without the lock always read a wrong value, and then
	// always find that the registers have been written meanwhile.
	Overtaken bool
	// For tests: programs compiled by their paths are such that the kernel's verifier refuses them.
	Refused bool
}
