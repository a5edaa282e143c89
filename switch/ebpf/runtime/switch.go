package runtime

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// Sizes of the rings, in bytes.
const (
	packetInRing = 1 << 20
	digestRing   = 1 << 20
	messageRing  = 1 << 18
	tapRing      = 16 << 20
)

// Switch has the data that all pipelines of one switch share and that outlives them.
type Switch struct {
	emit.Settings
	atXDP     bool          // programs are also loaded for XDP
	magic     uint64        // identifies the switch in metadata cookies
	pipelines atomic.Uint64 // number of pipelines created so far

	PortMap    *PortMap
	PacketOuts *State    // the frame of a packet-out
	buffer     *ebpf.Map // buffers for each CPU
	PacketIn   *Ring
	digests    *Ring
	messages   *Ring
	tap        *Ring // nil if Options.Tap is not set
}

// NewSwitch creates the maps and rings of a switch. It calls each function with every record of its
// ring. The functions must not retain the record. onTap may be nil.
func NewSwitch(s emit.Settings, atXDP bool, log *slog.Logger, onPacketIn, onDigest,
	onMessage, onTap func(record []byte)) (sh *Switch, err error) {
	sh = &Switch{Settings: s, atXDP: atXDP, magic: rand.Uint64()}
	defer func() {
		if err != nil {
			sh.CloseRings()
			sh.Close()
		}
	}()
	if sh.PortMap, err = newPortMap(); err != nil {
		return nil, err
	}
	if sh.PacketOuts, err = NewState(memory.PacketOutSize); err != nil {
		return nil, err
	}
	if sh.buffer, err = newMapIn(ebpf.MapSpec{Name: "buffer", Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: memory.BufferSize, MaxEntries: memory.Buffers}); err != nil {
		return nil, err
	}
	if sh.PacketIn, err = newRing("packet_in", packetInRing, log, onPacketIn); err != nil {
		return nil, err
	}
	if sh.digests, err = newRing("digests", digestRing, log, onDigest); err != nil {
		return nil, err
	}
	if sh.messages, err = newRing("messages", messageRing, log, onMessage); err != nil {
		return nil, err
	}
	if onTap != nil {
		if sh.tap, err = newRing("tap", tapRing, log, onTap); err != nil {
			return nil, err
		}
	}
	return sh, nil
}

// CloseRings stops reading the rings. It returns once no record is being handled.
func (s *Switch) CloseRings() {
	for _, r := range []*Ring{s.PacketIn, s.digests, s.messages, s.tap} {
		if r != nil {
			r.close()
		}
	}
}

// Close releases the maps.
func (s *Switch) Close() {
	if s.buffer != nil {
		s.buffer.Close()
	}
	if s.PortMap != nil {
		s.PortMap.Close()
	}
	if s.PacketOuts != nil {
		s.PacketOuts.Close()
	}
}
