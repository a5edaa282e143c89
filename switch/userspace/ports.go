package userspace

import (
	"encoding/binary"
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// AddPort implements target.Device.
func (d *Device) AddPort(p target.Port) error {
	if d.opts.CPUPort != 0 && p.Number == d.opts.CPUPort {
		return fmt.Errorf("port %d is the CPU port: %w", p.Number, target.ErrInvalid)
	}
	return d.ports.Add(p.Number, p.Iface)
}

// RemovePort implements target.Device.
func (d *Device) RemovePort(number uint32) error { return d.ports.Remove(number) }

// Ports implements target.Device.
func (d *Device) Ports() map[target.Port]target.PortCounters {
	out := map[target.Port]target.PortCounters{}
	for n, s := range d.ports.Ports() {
		out[target.Port{Number: n, Iface: s.Iface}] = target.PortCounters{
			RxPackets: s.RxPackets, RxBytes: s.RxBytes, TxPackets: s.TxPackets, TxBytes: s.TxBytes,
			TxDropped: s.TxDropped,
		}
	}
	return out
}

// received takes a frame from an interface.
func (d *Device) received(port uint32, frame []byte) {
	if d.opts.OnlyUDP == 0 || ofUDPPort(frame, d.opts.OnlyUDP) {
		d.frame(port, frame)
	}
}

// ofUDPPort reports whether a frame is an IPv4 packet to or from a UDP port, not a fragment and
// without options.
func ofUDPPort(frame []byte, port uint16) bool {
	const ports = 14 + 20
	return len(frame) >= ports+4 && binary.BigEndian.Uint16(frame[12:]) == 0x0800 &&
		frame[14] == 0x45 && binary.BigEndian.Uint16(frame[20:])&0x3fff == 0 && frame[23] == 17 &&
		(binary.BigEndian.Uint16(frame[ports:]) == port ||
			binary.BigEndian.Uint16(frame[ports+2:]) == port)
}
