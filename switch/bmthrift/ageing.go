package bmthrift

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/target"
)

// idle notifies the Thrift clients about entries whose idle timeout has expired, as BMv2 does. It
// sends one message for each table, with the entries' handles.
func (h *handler) idle(p target.Pipeline, entries []target.IdleEntry) {
	if h.prog == nil { // No Thrift call has arrived yet.
		_ = h.bound(func(target.Pipeline) error { return nil })(p)
	}
	if h.prog != p.Program() {
		return // The handles belong to a program that is not running yet.
	}
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Table == entries[0].Table {
			n++
		}
		h.notifyIdle(p, entries[0].Table, entries[:n])
		entries = entries[n:]
	}
}

func (h *handler) notifyIdle(p target.Pipeline, table string, entries []target.IdleEntry) {
	t, hs, _, err := h.entries(p, table)
	if err != nil {
		h.log.Warn("Thrift: entries are idle, and listeners are not told", "table", table, "err",
			err)
		return
	}
	m := append(make([]byte, 0, 32+4*len(entries)), "AGE|"...)
	m = binary.LittleEndian.AppendUint64(m, h.opts.DeviceID)
	m = binary.LittleEndian.AppendUint32(m, 0) // BMv2's context id, which is always 0
	m = binary.LittleEndian.AppendUint64(m, h.aged)
	m = binary.LittleEndian.AppendUint32(m, uint32(t.ID))
	m = binary.LittleEndian.AppendUint32(m, uint32(len(entries)))
	for i := range entries {
		handle := hs.handleAt(hs.byKey[keyOf(&entries[i].Entry)])
		m = binary.LittleEndian.AppendUint32(m, uint32(handle))
	}
	h.aged++
	h.opts.Publisher.Publish(m)
}
