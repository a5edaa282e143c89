package translate

import (
	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/target"
)

// CheckMaxSize applies the rules on max_size (section 9.2.2).
func (p *ActionProfile) CheckMaxSize(size int32) error {
	switch most := p.Info.MaxGroupSize; {
	case size < 0:
		return Invalidf("max_size %d is negative", size)
	case most > 0 && size > most:
		return Invalidf("max_size %d exceeds the max_group_size %d of action selector %s", size,
			most, p.Name)
	}
	return nil
}

// CheckWeights checks the weights of a group or action set. If sumOfMembers is set, the size is the
// number of members, otherwise the sum of weights. limit is the group's own limit, or 0 if there is
// none. over is the error code for a size above the limit.
func (p *ActionProfile) CheckWeights(weights []int32, limit int64, sumOfMembers bool,
	over codes.Code) error {
	if limit == 0 {
		limit = int64(p.Info.MaxGroupSize)
	}
	var sum int64
	for _, w := range weights {
		switch most := p.Info.GetSumOfMembers().GetMaxMemberWeight(); {
		case p.Info.WeightsDisallowed && w != 0:
			return Invalidf("action selector %s disallows weights: leave the weight of %d unset",
				p.Name, w)
		case p.Info.WeightsDisallowed: // Each member has weight 1.
		case w <= 0:
			return Invalidf("a weight is at least 1, not %d", w)
		case sumOfMembers && most > 0 && w > most:
			return Invalidf(
				"the weight %d exceeds the max_member_weight %d of action selector %s", w, most,
				p.Name)
		}
		if sumOfMembers {
			sum++
		} else {
			sum += int64(p.Weighted(0, w).Weight)
		}
	}
	if limit > 0 && sum > limit {
		return Errorf(over, "a group of size %d exceeds the limit of %d of action selector %s", sum,
			limit, p.Name)
	}
	return nil
}

// SelectionOf checks how an action set selects actions and how it counts its size. It reports
// whether the size is the number of actions.
func (p *ActionProfile) SelectionOf(set *p4v1.ActionProfileActionSet) (sumOfMembers bool, err error) {
	if len(set.ProtoReflect().GetUnknown()) > 0 {
		return false, Errorf(codes.Unimplemented,
			"the action set has fields that P4Runtime %s does not have", APIVersion)
	}
	switch m := set.ActionSelectionMode; m {
	case p4v1.ActionProfileActionSet_DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR,
		p4v1.ActionProfileActionSet_HASH: // action selectors select by a hash
	case p4v1.ActionProfileActionSet_RANDOM:
		return false, Errorf(codes.Unimplemented,
			"action selector %s selects by a hash: action_selection_mode RANDOM is not implemented",
			p.Name)
	default:
		return false, Invalidf("there is no action_selection_mode %d", m)
	}
	switch s := set.SizeSemantics; s {
	case p4v1.ActionProfileActionSet_DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR:
		return p.SumOfMembers(), nil
	case p4v1.ActionProfileActionSet_SUM_OF_WEIGHTS:
		return false, nil
	case p4v1.ActionProfileActionSet_SUM_OF_MEMBERS:
		return true, nil
	default:
		return false, Invalidf("there is no size_semantics %d", s)
	}
}

// SumOfMembers reports whether a group's size is the number of its members. Otherwise the size is
// the sum of their weights.
func (p *ActionProfile) SumOfMembers() bool {
	_, is := p.Info.SelectorSizeSemantics.(*p4cfg.ActionProfile_SumOfMembers_)
	return is
}

// Weighted converts a member to the engine's form. If weights are disallowed, all members have the
// same weight.
func (p *ActionProfile) Weighted(member uint32, weight int32) target.WeightedMember {
	if p.Info.WeightsDisallowed {
		weight = 1
	}
	return target.WeightedMember{Member: member, Weight: int(weight)}
}
