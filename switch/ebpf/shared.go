package ebpf

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
)

// Bytes in the rings.
const (
	packetInRing = 1 << 20
	digestRing   = 1 << 20
	tapRing      = 16 << 20
)

// shared is what all pipelines of one switch have in common, and what outlives each of them.
type shared struct {
	compile.Settings
	atXDP     bool          // programs are loaded for XDP, too
	magic     uint64        // of the switch, in metadata cookies
	pipelines atomic.Uint64 // how many there have been

	portMap    *portMap
	packetOuts *state    // the frame of a packet-out
	buffer     *ebpf.Map // a frame for each CPU
	packetIn   *ring
	digests    *ring
	tap        *ring // nil if nobody asked for it
}

// newShared makes the maps. The functions are called with each record of their ring, which they must not keep; onTap may be nil.
func newShared(s compile.Settings, atXDP bool, log *slog.Logger, onPacketIn, onDigest, onTap func(record []byte)) (sh *shared, err error) {
	sh = &shared{Settings: s, atXDP: atXDP, magic: rand.Uint64()}
	defer func() {
		if err != nil {
			sh.closeRings()
			sh.close()
		}
	}()
	if sh.portMap, err = newPortMap(); err != nil {
		return nil, err
	}
	if sh.packetOuts, err = newState(compile.PacketOutSize); err != nil {
		return nil, err
	}
	if sh.buffer, err = newMapIn(ebpf.MapSpec{Name: "buffer", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: compile.BufferSize, MaxEntries: 1}); err != nil {
		return nil, err
	}
	if sh.packetIn, err = newRing("packet_in", packetInRing, log, onPacketIn); err != nil {
		return nil, err
	}
	if sh.digests, err = newRing("digests", digestRing, log, onDigest); err != nil {
		return nil, err
	}
	if onTap != nil {
		if sh.tap, err = newRing("tap", tapRing, log, onTap); err != nil {
			return nil, err
		}
	}
	return sh, nil
}

// closeRings ends the reading of the rings, and returns when no record is being handled any more.
func (s *shared) closeRings() {
	for _, r := range []*ring{s.packetIn, s.digests, s.tap} {
		if r != nil {
			r.close()
		}
	}
}

// close frees the maps.
func (s *shared) close() {
	if s.buffer != nil {
		s.buffer.Close()
	}
	if s.portMap != nil {
		s.portMap.close()
	}
	if s.packetOuts != nil {
		s.packetOuts.close()
	}
}
