package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
)

// mostResting bounds the fields of a block that rests.
const mostResting = 16

// Resting is a block that may rest, and the place of its mask.
type Resting struct {
	Header *bmv2json.Header
	Mask   int
}

// planResting finds the blocks that rest.
func (p *Plan) planResting(take func(bytes int) int) {
	p.RestingFields = map[int]restingField{}
	if p.Requests.Any() || len(p.Prog.Parsers) != 1 || len(p.Prog.Deparsers) != 1 ||
		analysis.HasVarbit(p.Prog.Deparsers[0]) {
		return
	}
	moved := analysis.OnlyMoved(p.Prog)
	for _, h := range p.Prog.Headers {
		if !p.Blocks[h] || !moved[h] || len(h.Type.Fields) > mostResting {
			continue
		}
		r := &Resting{h, take(4)}
		p.Resting = append(p.Resting, r)
		for i, f := range p.Layout.Types[h.Type].Fields {
			p.RestingFields[p.Layout.Base[h.Index]+f.Off] = restingField{r, i}
		}
	}
}

// restingField is a field of a block that rests.
type restingField struct {
	*Resting
	Index int
}

// WholeMask is the mask of a block that is completely in the frame.
func (r *Resting) WholeMask() int32 { return 1<<len(r.Header.Type.Fields) - 1 }

// RestsIn returns a header's description as a block that may rest; nil if it may not.
func (p *Plan) RestsIn(h *bmv2json.Header) *Resting {
	for _, r := range p.Resting {
		if r.Header == h {
			return r
		}
	}
	return nil
}
