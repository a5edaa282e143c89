package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// deparser is a compiled deparser.
type deparser struct {
	id     int // in events
	obs    *observer
	order  []int
	ids    []int // of the headers, in events
	do     []doFn
	update []*checksum
}

func (c *compiler) deparser(d *bmv2json.Deparser) (out deparser) {
	out.id, out.obs = d.ID, c.obs
	for _, h := range d.Order {
		out.order, out.ids = append(out.order, h.Index), append(out.ids, h.ID)
	}
	for _, pr := range d.Primitives {
		out.do = append(out.do, c.primitive(pr))
	}
	return out
}

// prepare updates the checksums and does what else the deparser says, and reports how long the
// packet is with its headers.
func (d *deparser) prepare(st *state) (size int) {
	d.obs.event(st, EventDeparserStart, d.id, 0)
	for _, k := range d.update {
		k.update(st)
		d.obs.event(st, EventChecksumUpdate, k.id, 0)
	}
	for _, do := range d.do {
		do(st)
	}
	size = len(st.payload)
	for _, h := range d.order {
		if st.valid[h] {
			size += st.size(h)
		}
	}
	return size
}

// write writes the packet to out, which is as long as prepare has said.
func (d *deparser) write(out []byte, st *state) {
	at := 0
	for i, h := range d.order {
		if st.valid[h] {
			d.obs.event(st, EventDeparserEmit, d.ids[i], 0)
			at += st.headerBytes(out[at:], h)
		}
	}
	d.obs.event(st, EventDeparserDone, d.id, 0)
	copy(out[at:], st.payload)
}
