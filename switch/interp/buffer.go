package interp

import (
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
)

// Out is a frame that leaves through a port.
type Out struct {
	Port  uint32
	Frame []byte
}

// Buffer is memory for outgoing frames. The next packet that uses the Buffer overwrites these
// frames.
type Buffer struct {
	// Outs has the frames of the last packet, in the order in which they left. Their memory belongs
	// to the Buffer, so it is valid until the next ProcessInto.
	Outs  []Out
	arena []byte
}

func (b *Buffer) reset() {
	b.Outs, b.arena = b.Outs[:0], b.arena[:0]
}

// alloc returns n bytes whose content is undefined.
func (b *Buffer) alloc(n int) []byte {
	at := len(b.arena)
	if at+n > cap(b.arena) {
		// Frames that were already handed out keep the old memory.
		b.arena, at = make([]byte, 0, max(2*cap(b.arena), n, 4096)), 0
	}
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}

// deparse returns the packet's headers and payload as bytes.
func (b *Buffer) deparse(d *reference.Deparser, st *packet.State) []byte {
	out := b.alloc(d.Prepare(st))
	d.Write(out, st)
	return out
}
