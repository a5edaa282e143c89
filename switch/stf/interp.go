package stf

import (
	"time"

	"github.com/netcraq/netcraq/switch/interp"
)

// Interp returns a Switch that runs the interp engine.
func Interp(p *interp.Pipeline) Switch {
	return Switch{Pipeline: p, Process: func(now time.Duration, port uint32,
		frame []byte) []Packet {
		var out []Packet
		for _, o := range p.Process(now, port, frame) {
			out = append(out, Packet{o.Port, o.Frame})
		}
		return out
	}}
}
