package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
)

// mostResting is the largest number of fields of a block that may rest in the frame.
const mostResting = 16

// Resting is a block that may rest in the frame, and the offset of its mask in the PHV.
type Resting struct {
	Header *bmv2json.Header
	Mask   int
}

// planResting finds the blocks that may rest in the frame.
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

// restingField is a field of a block that may rest in the frame.
type restingField struct {
	*Resting
	Index int
}

// WholeMask returns the mask of a block whose fields are all in the frame.
func (r *Resting) WholeMask() int32 { return 1<<len(r.Header.Type.Fields) - 1 }

// RestsIn returns the Resting of a header, or nil if the header may not rest in the frame.
func (p *Plan) RestsIn(h *bmv2json.Header) *Resting {
	for _, r := range p.Resting {
		if r.Header == h {
			return r
		}
	}
	return nil
}
