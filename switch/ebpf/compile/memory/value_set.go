package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Parser value sets. A set is a list of members, each with the words of a select's key and their
// masks. The state has two copies: packets read the copy that a word names, and the control plane
// writes the other copy and then the word. So a packet sees the whole set either before or after a
// change.

// SetPlan is the place of a value set.
type SetPlan struct {
	Source *bmv2json.ValueSet
	Size   int // highest number of members
	Words  int // words of 64 bits in a member's key
	// the word that packets read first: the number of members, plus 1 << 32 if the second copy is
	// the current one
	At    int
	Lists [2]int // the copies: for each member its words and then their masks
}

// maxSetMembers is the largest set: its members are compared one after the other.
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
