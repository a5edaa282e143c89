package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Parser value sets. A value set is a list of members. Each member has the words of a select's key,
// and their masks. The state has two copies of the list. Packets read the copy that a word names.
// The control plane writes the other copy and then the word. So a packet sees the whole set either
// before or after a change.

// SetPlan describes where the state holds a value set.
type SetPlan struct {
	Source *bmv2json.ValueSet
	Size   int // largest number of members
	Words  int // number of 64-bit words in a member's key
	// Offset of the word that packets read first. It contains the number of members, plus 1 << 32
	// if the second copy is current.
	At    int
	Lists [2]int // offsets of the copies, which have each member's words and then its masks
}

// maxSetMembers is the largest number of members of a value set. A packet compares its key with one
// member after the other.
const maxSetMembers = 256

func (p *Plan) planValueSets() {
	for _, s := range p.Prog.ValueSets {
		sp := SetPlan{Source: s, Size: s.MaxSize}
		if sp.Size > maxSetMembers {
			ir.Refuse(s.Path, "a parser value set of %d members (%s; at most %d can be)", s.MaxSize,
				s.Name, maxSetMembers)
		}
		for _, w := range s.Widths {
			sp.Words += ir.WordsOf(w)
		}
		sp.At = p.allocate(8)
		for i := range sp.Lists {
			sp.Lists[i] = p.allocate(sp.Size * sp.Words * 16)
		}
		p.ValueSets = append(p.ValueSets, sp)
	}
}
