package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// Out is a frame that leaves by a port.
type Out struct {
	Port  uint32
	Frame []byte
}

// Buffer is memory for outgoing frames. The next packet reuses it.
type Buffer struct {
	// Outs are the frames of the last packet, in the order in which they left. Their memory is the
	// buffer's: it is valid until the next ProcessInto.
	Outs  []Out
	arena []byte
}

func (b *Buffer) reset() {
	b.Outs, b.arena = b.Outs[:0], b.arena[:0]
}

// alloc returns n bytes whose content is not defined.
func (b *Buffer) alloc(n int) []byte {
	at := len(b.arena)
	if at+n > cap(b.arena) {
		// Frames that were given out keep the old memory.
		b.arena, at = make([]byte, 0, max(2*cap(b.arena), n, 4096)), 0
	}
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}

// deparse returns the packet's bytes, with its headers.
func (b *Buffer) deparse(d *reference.Deparser, st *packet.State) []byte {
	out := b.alloc(d.Prepare(st))
	d.Write(out, st)
	return out
}
