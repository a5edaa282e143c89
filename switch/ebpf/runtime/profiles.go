package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

func none(kind, name string) error {
	return fmt.Errorf("%s %q: %w", kind, name,
		target.ErrNotFound)
}

// What no program that this engine takes can have: action profiles.

// SetMember implements [target.Pipeline]; so do the others below. A program with such a construct
// has been refused.
func (p *Pipeline) SetMember(profile string, _ uint32, _ *target.ActionCall, _ bool) error {
	return none("action profile", profile)
}
func (p *Pipeline) DeleteMember(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *Pipeline) Members(profile string) (map[uint32]target.ActionCall, error) {
	return nil, none("action profile", profile)
}
func (p *Pipeline) SetGroup(profile string, _ uint32, _ []target.WeightedMember, _ bool) error {
	return none("action profile", profile)
}
func (p *Pipeline) DeleteGroup(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *Pipeline) Groups(profile string) (map[uint32][]target.WeightedMember, error) {
	return nil, none("action profile", profile)
}
