package userspace

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/target"
)

// AddPort implements target.Device.
func (d *Device) AddPort(p target.Port) error {
	if d.opts.CPUPort != 0 && p.Number == d.opts.CPUPort {
		return fmt.Errorf("port %d is the CPU port: %w", p.Number, target.ErrInvalid)
	}
	if err := d.ports.Add(p.Number, p.Iface); err != nil {
		return err
	}
	if err := d.finishFrames(p); err != nil {
		d.log.Info("the sender at a port's other end may send frames that are too large, which are dropped",
			"port", p.Number, "iface", p.Iface, "err", err)
	}
	return nil
}

// finishFrames makes the other end of a veth send frames as on a wire. The ports' rings only have
// room for frames of the MTU, but a sender with segmentation offload sends frames of 64 kB. With
// OnlyUDP, finishFrames does nothing, because all TCP belongs to the host, which benefits from
// segmentation offload.
func (d *Device) finishFrames(p target.Port) error {
	link, err := netlink.LinkByName(p.Iface)
	veth, is := link.(*netlink.Veth)
	if err != nil || !is || d.opts.OnlyUDP != 0 {
		return err
	}
	d.peersMu.Lock()
	defer d.peersMu.Unlock()
	if d.home == nil {
		if d.home, err = attach.EnterNamespace(); err != nil {
			return err
		}
	}
	peer, err := attach.FinishFrames(d.home, veth)
	if err == nil {
		d.peers[p.Number] = peer
	}
	return err
}

// releasePeer restores the settings of the other end of a port's veth pair.
func (d *Device) releasePeer(number uint32) {
	d.peersMu.Lock()
	defer d.peersMu.Unlock()
	if peer := d.peers[number]; peer != nil {
		peer.Release()
		delete(d.peers, number)
	}
}

// releasePeers restores the settings of the other ends of all ports' veth pairs.
func (d *Device) releasePeers() {
	d.peersMu.Lock()
	defer d.peersMu.Unlock()
	for _, peer := range d.peers {
		peer.Release()
	}
	clear(d.peers)
	if d.home != nil {
		d.home.Close()
	}
}

// RemovePort implements target.Device.
func (d *Device) RemovePort(number uint32) error {
	d.releasePeer(number)
	return d.ports.Remove(number)
}

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

// received handles a frame that arrived at an interface.
func (d *Device) received(port uint32, frame []byte) {
	if d.opts.OnlyUDP == 0 || ofUDPPort(frame, d.opts.OnlyUDP) {
		d.frame(port, frame)
	}
}

// ofUDPPort reports whether a frame is an unfragmented IPv4 packet without options, to or from a
// UDP port.
func ofUDPPort(frame []byte, port uint16) bool {
	const ports = 14 + 20
	return len(frame) >= ports+4 && binary.BigEndian.Uint16(frame[12:]) == 0x0800 &&
		frame[14] == 0x45 && binary.BigEndian.Uint16(frame[20:])&0x3fff == 0 && frame[23] == 17 &&
		(binary.BigEndian.Uint16(frame[ports:]) == port ||
			binary.BigEndian.Uint16(frame[ports+2:]) == port)
}
