package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Action profiles and selectors. An entry that names a member has its action and parameters in its
// own slot, like other entries; a change of the member changes these entries. An entry that names a
// group has the group's word in its slot, which says where the words of the group's members are and
// how many there are. A packet's hash selects one of them, which leads to the slot of a member. So
// a group changes in one step, and an entry's counter stays with the entry.

// GroupAction stands for the action's number in the word of an entry that names a group.
const GroupAction = 0xffff

// GroupWord is the word of a group whose members' words begin at place at.
func GroupWord(at, count int) uint64 { return uint64(at)<<32 | uint64(count) }

const (
	leastMembers = 64
	// number of words that a selector's groups may have in total, per member of the profile
	membersShared = 4
	maxMembers    = 1 << 16
)

// planGroups makes room for the words of groups' members.
func (t *TablePlan) planGroups(p *Plan) {
	t.MemberCount = min(membersShared*max(t.Source.ActionProfile.MaxSize, leastMembers), maxMembers)
	t.Members = p.allocate(8 * t.MemberCount)
}

// selectors are the calculations of the profiles that tables choose from.
func (p *Plan) selectors() (out []*bmv2json.Calculation) {
	for _, t := range p.Prog.Tables() {
		if t.Kind == bmv2json.TableIndirectWS {
			out = append(out, SelectorOf(t))
		}
	}
	return out
}

// SelectorOf is the calculation by which a table's groups choose a member.
func SelectorOf(t *bmv2json.Table) *bmv2json.Calculation {
	s := t.ActionProfile.Selector
	return &bmv2json.Calculation{Name: t.ActionProfile.Name, Path: t.ActionProfile.Path, Algo: s.Algo,
		Input: s.Input}
}

// HasGroups reports whether a table chooses from groups.
func (p *Plan) HasGroups() bool { return len(p.selectors()) > 0 }
