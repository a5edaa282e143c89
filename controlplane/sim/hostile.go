package sim

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Hostile hosts. They know everything: KEY_IDs, sessions, the numbers of requests, what others are
// about to send. What they put on the wire is whatever they like; what they cannot do is put it
// anywhere but at their own ports. Half of them have closed ports, the others may write one key
// that is of another realm than clients' keys. Clients must not notice them, and nobody at a closed
// port gets an answer.

// attack has hostile hosts send until the run is over.
func (w *world) attack(seed uint64) {
	d := newDice(seed, diceHostile)
	d.chance(0) // a stream of its own: what was drawn to decide that there is an attack says nothing here
	var next func()
	next = func() {
		h := pick(d, w.shape.foes()...)
		if frame := w.forge(d, h); frame != nil {
			w.cover.add("hostile.sent", 1)
			w.fromHost(h, frame)
		}
		w.loop.after(d.between(50*time.Microsecond, time.Millisecond), next)
	}
	next()
}

// forge makes a frame that would do harm if it were believed.
func (w *world) forge(d dice, h *topology.Host) []byte {
	victim := pick(d, w.clients...)
	p := &wire.Packet{
		Op: pick(d, wire.Read, wire.Write, wire.Write, wire.Write, wire.CAS, wire.Ack, wire.ReadReply,
			wire.WriteReply, wire.CASReply, wire.Sync, wire.Lease, wire.Fetch),
		Key:   pick(d, append([]wire.Key{sharedKey, sharedKey}, w.keysNow()...)...),
		Value: fmt.Appendf(nil, "forged %d", d.IntN(1000)),
	}
	if record := w.store.record; record != nil {
		p.Epoch = record.Config.Epoch + uint16(d.IntN(3)) - 1
	}
	p.Version = wire.MakeVersion(p.Epoch, d.Uint64N(64))
	// A session of a client's, of the controller's, or none; its next request, or the last that
	// there is.
	p.Session = pick(d, append(w.sessions(), 0, 0, 0, w.lastSession, w.lastSession)...)
	p.Request = pick(d, uint32(d.IntN(64)), uint32(d.IntN(64)), wire.RequestWindow, 0xFFFFFFFF)
	switch {
	case p.Op.IsReply():
		p.Status = pick(d, wire.OK, wire.NotFound, wire.CASFailed, wire.Denied)
	case p.Op == wire.Write || p.Op == wire.CAS:
		p.Flags = pick(d, 0, 0, 0, 0, wire.Stamped, wire.ToHead, wire.Stamped|wire.NoReply)
	case p.Op == wire.Read:
		p.Flags = pick(d, 0, wire.Eventual, wire.DirtyForwarded)
	}
	if p.Op != wire.CAS && p.Flags&wire.Stamped == 0 && (p.Op == wire.Write || p.Op == wire.Read) {
		p.Version = 0
	}
	if p.Op == wire.Read {
		p.Value = nil
	}
	// What somebody has just sent, said before it gets there.
	if seen := w.overheard; seen != nil && d.chance(0.4) {
		p.Op, p.Key, p.Session, p.Request, p.Flags, p.Version = seen.packet.Op, seen.packet.Key,
			seen.packet.Session, seen.packet.Request, 0, seen.packet.Version
		victim = seen.client
		if reply, ok := p.Op.Reply(); ok && d.chance(0.5) {
			p.Op, p.Flags, p.Status = reply, 0, wire.OK
			p.Version = wire.MakeVersion(p.Epoch, d.Uint64N(64))
		}
	}
	payload, err := p.Marshal(profile)
	if err != nil {
		return nil // not even a forger can write that
	}
	f := wire.Frame{Src: netip.AddrPortFrom(h.IP, 40000), Dst: address(pick(d, w.nodes...))}
	if d.chance(0.5) {
		f.Dst = netip.AddrPortFrom(w.shape.topo.Chains[0].Address, wire.Port)
	}
	if d.chance(0.5) {
		f.Src = netip.AddrPortFrom(victim.h.IP, victim.port)
	}
	if p.Op.IsReply() {
		f.Src, f.Dst = f.Dst, netip.AddrPortFrom(victim.h.IP, victim.port)
	}
	copy(f.EthernetDst[:], h.Switch.MAC)
	copy(f.EthernetSrc[:], h.MAC)
	f.Principal = pick[uint16](d, 0, 1, 2, 3, 0xFFFF) // as a switch would have written it
	frame, err := f.AppendTo(nil, payload)
	must(err)
	return frame
}

// keysNow is the KEY_IDs that there are.
func (w *world) keysNow() (out []wire.Key) {
	for _, k := range w.keys {
		out = append(out, w.id(k))
	}
	return out
}
