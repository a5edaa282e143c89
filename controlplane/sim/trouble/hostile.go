package trouble

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/world"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// This file simulates hostile hosts. They know everything: KEY_IDs, sessions, the numbers of
// requests, and the next request of each client. They may send any bytes, but only at their own
// ports. Half of them have closed ports. The others may write one key, which is in another realm
// than the clients' keys. Clients must not notice hostile hosts, and a host at a closed port must
// get no answer.

// Attack makes hostile hosts send until the run is over.
func Attack(w *world.World, seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceHostile)
	d.Chance(0) // this skips the draw that decided on the attack, which would bias the next draws
	var next func()
	next = func() {
		h := clockwork.Pick(d, w.Shape.Foes()...)
		if frame := forge(w, d, h); frame != nil {
			w.Cover.Count("hostile.sent", 1)
			w.FromHost(h, frame)
		}
		w.Loop.After(d.Between(50*time.Microsecond, time.Millisecond), next)
	}
	next()
}

// forge makes a frame that would do harm if a switch accepted it.
func forge(w *world.World, d clockwork.Dice, h *topology.Host) []byte {
	victim := clockwork.Pick(d, w.Clients...)
	p := &wire.Packet{
		Op: clockwork.Pick(d, wire.Read, wire.Write, wire.Write, wire.Write, wire.CAS, wire.Ack, wire.ReadReply,
			wire.WriteReply, wire.CASReply, wire.Sync, wire.Lease, wire.Fetch),
		Key:   clockwork.Pick(d, append([]wire.Key{shapes.SharedKey, shapes.SharedKey}, keysNow(w)...)...),
		Value: fmt.Appendf(nil, "forged %d", d.IntN(1000)),
	}
	if record := w.Store.Record; record != nil {
		p.Epoch = record.Config.Epoch + uint16(d.IntN(3)) - 1
	}
	p.Version = wire.MakeVersion(p.Epoch, d.Uint64N(64))
	// The session is a client's session, the controller's session, or none. The number is the
	// session's next request number, or the highest possible number.
	p.Session = clockwork.Pick(d, append(w.Sessions(), 0, 0, 0, w.LastSession, w.LastSession)...)
	p.Request = clockwork.Pick(d, uint32(d.IntN(64)), uint32(d.IntN(64)), wire.RequestWindow, 0xFFFFFFFF)
	switch {
	case p.Op.IsReply():
		p.Status = clockwork.Pick(d, wire.OK, wire.NotFound, wire.CASFailed, wire.Denied)
	case p.Op == wire.Write || p.Op == wire.CAS:
		p.Flags = clockwork.Pick(d, 0, 0, 0, 0, wire.Stamped, wire.ToHead, wire.Stamped|wire.NoReply)
	case p.Op == wire.Read:
		p.Flags = clockwork.Pick(d, 0, wire.Eventual, wire.DirtyForwarded)
	}
	if p.Op != wire.CAS && p.Flags&wire.Stamped == 0 && (p.Op == wire.Write || p.Op == wire.Read) {
		p.Version = 0
	}
	if p.Op == wire.Read {
		p.Value = nil
	}
	// This is a copy of a client's latest request, which may arrive before the original.
	if seen := w.Overheard; seen != nil && d.Chance(0.4) {
		p.Op, p.Key, p.Session, p.Request, p.Flags, p.Version = seen.Packet.Op, seen.Packet.Key,
			seen.Packet.Session, seen.Packet.Request, 0, seen.Packet.Version
		victim = seen.Client
		if reply, ok := p.Op.Reply(); ok && d.Chance(0.5) {
			p.Op, p.Flags, p.Status = reply, 0, wire.OK
			p.Version = wire.MakeVersion(p.Epoch, d.Uint64N(64))
		}
	}
	payload, err := p.Marshal(compiled.Profile)
	if err != nil {
		return nil // a packet with these random fields cannot be encoded
	}
	f := wire.Frame{Src: netip.AddrPortFrom(h.IP, 40000), Dst: world.Address(clockwork.Pick(d, w.Nodes...))}
	if d.Chance(0.5) {
		f.Dst = netip.AddrPortFrom(w.Shape.Topology.Chains[0].Address, wire.Port)
	}
	if d.Chance(0.5) {
		f.Src = netip.AddrPortFrom(victim.Host.IP, victim.Port)
	}
	if p.Op.IsReply() {
		f.Src, f.Dst = f.Dst, netip.AddrPortFrom(victim.Host.IP, victim.Port)
	}
	copy(f.EthernetDst[:], h.Switch.MAC)
	copy(f.EthernetSrc[:], h.MAC)
	f.Principal = clockwork.Pick[uint16](d, 0, 1, 2, 3, 0xFFFF) // only a switch may set this field
	frame, err := f.AppendTo(nil, payload)
	world.Must(err)
	return frame
}

// keysNow returns the present KEY_IDs.
func keysNow(w *world.World) (out []wire.Key) {
	for _, k := range w.Keys {
		out = append(out, w.ID(k))
	}
	return out
}
