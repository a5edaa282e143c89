package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// Deparser is a compiled deparser.
type Deparser struct {
	id     int // the deparser's id in events
	obs    *packetevents.Observer
	order  []int
	ids    []int // ids of the headers in events
	do     []expression.Statement
	update []*Checksum
}

// Deparser compiles a deparser.
func (c *Compiler) Deparser(d *bmv2json.Deparser) (out Deparser) {
	out.id, out.obs = d.ID, c.Observer
	for _, h := range d.Order {
		out.order, out.ids = append(out.order, h.Index), append(out.ids, h.ID)
	}
	for _, pr := range d.Primitives {
		out.do = append(out.do, c.primitive(pr))
	}
	return out
}

// Prepare updates the checksums and runs the statements of the deparser. It returns the packet's
// length including its headers.
func (d *Deparser) Prepare(st *packet.State) (size int) {
	d.obs.Event(st, packetevents.DeparserStart, d.id, 0)
	for _, k := range d.update {
		k.update(st)
		d.obs.Event(st, packetevents.ChecksumUpdate, k.id, 0)
	}
	for _, do := range d.do {
		do(st)
	}
	size = len(st.Payload)
	for _, h := range d.order {
		if st.Valid[h] {
			size += st.HeaderSize(h)
		}
	}
	return size
}

// Write writes the packet to out. The length of out must be the result of Prepare.
func (d *Deparser) Write(out []byte, st *packet.State) {
	at := 0
	for i, h := range d.order {
		if st.Valid[h] {
			d.obs.Event(st, packetevents.DeparserEmit, d.ids[i], 0)
			at += st.WriteHeader(out[at:], h)
		}
	}
	d.obs.Event(st, packetevents.DeparserDone, d.id, 0)
	copy(out[at:], st.Payload)
}

// AddChecksum adds a checksum that Prepare must update.
func (d *Deparser) AddChecksum(k *Checksum) { d.update = append(d.update, k) }
