package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// Action profiles and selectors. An entry that names a member has the member's action and
// parameters in its own slot, like other entries. A change of the member changes all these entries.
// An entry that names a group has the group's word in its slot. This word says where the words of
// the group's members are, and how many there are. A packet's hash selects one of these words,
// which leads to the slot of a member. So a group changes in one step, and an entry's counter stays
// with the entry.

// GroupAction stands in place of the action's number in the word of an entry that names a group.
const GroupAction = 0xffff

// GroupWord returns the 64-bit word of a group whose members' entry words begin at offset at.
func GroupWord(at, count int) uint64 { return uint64(at)<<32 | uint64(count) }

const (
	leastMembers = 64
	// The groups of a selector may have this many words in total for each member of the profile.
	membersShared = 4
	maxMembers    = 1 << 16
)

// planGroups reserves space for the entry words of groups' members.
func (t *TablePlan) planGroups(p *Plan) {
	t.MemberCount = min(membersShared*max(t.Source.ActionProfile.MaxSize, leastMembers), maxMembers)
	t.Members = p.allocate(8 * t.MemberCount)
}

// selectors returns the calculations by which tables select members of groups.
func (p *Plan) selectors() (out []*bmv2json.Calculation) {
	for _, t := range p.Prog.Tables() {
		if t.Kind == bmv2json.TableIndirectWS {
			out = append(out, SelectorOf(t))
		}
	}
	return out
}

// SelectorOf returns the calculation by which a table selects a member of a group.
func SelectorOf(t *bmv2json.Table) *bmv2json.Calculation {
	s := t.ActionProfile.Selector
	return &bmv2json.Calculation{Name: t.ActionProfile.Name, Path: t.ActionProfile.Path, Algo: s.Algo,
		Input: s.Input}
}

// HasGroups reports whether any table selects members of groups.
func (p *Plan) HasGroups() bool { return len(p.selectors()) > 0 }
