package netchain

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/interp"
)

// BenchmarkHops measures a query on the interpreter in a line of four switches. The result is the
// time in all switches together, without links. The queries come from the host at the head. They
// are a write, whose answer passes back through all switches, and a read, which the tail answers.
func BenchmarkHops(b *testing.B) {
	for _, op := range []Op{Read, Write} {
		b.Run(opNames[op], func(b *testing.B) {
			n := newNetwork(&testing.T{}, links(4, 4, func(i, j int) bool { return j == i+1 }), 128, 1, 1)
			n.ask(0, &Packet{Op: Write, Value: value(1)})
			p := &Packet{Op: op, Value: value(2)}
			to := p.Request(n.chain())
			payload, err := p.Marshal(n.seqBits)
			if err != nil {
				b.Fatal(err)
			}
			f := wire.Frame{Src: netip.AddrPortFrom(n.topo.Hosts[0].IP, 4000), Dst: netip.AddrPortFrom(to, Port)}
			frame, err := f.AppendTo(nil, payload)
			if err != nil {
				b.Fatal(err)
			}
			buffers := make([]interp.Buffer, len(n.nodes))
			b.ReportAllocs()
			hops := 0
			for b.Loop() {
				hops = n.walk(b, buffers, frame)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*hops), "ns/hop")
			b.ReportMetric(float64(hops), "hops")
		})
	}
}

// walk passes a frame of the first host from switch to switch until it reaches a host. It returns
// the number of switches.
func (n *network) walk(b *testing.B, buffers []interp.Buffer, frame []byte) (hops int) {
	for at, port := 0, uint32(toHost); ; {
		n.nodes[at].p.ProcessInto(&buffers[at], n.now, port, frame)
		if hops++; len(buffers[at].Outs) != 1 {
			b.Fatalf("%d frames came out of %s", len(buffers[at].Outs), n.nodes[at].s.Name)
		}
		out := buffers[at].Outs[0]
		link, ok := n.nodes[at].s.Port(out.Port)
		if !ok {
			b.Fatalf("%s has no port %d", n.nodes[at].s.Name, out.Port)
		}
		if link.Host != nil {
			return hops
		}
		at, port, frame = slices.Index(n.topo.Switches, link.Peer), link.PeerPort, out.Frame
	}
}
