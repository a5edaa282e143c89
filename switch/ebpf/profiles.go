package ebpf

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

func none(kind, name string) error { return fmt.Errorf("%s %q: %w", kind, name, target.ErrNotFound) }

// What no program that this engine takes can have: action profiles.

// SetMember implements [target.Pipeline]; so do the others below. A program with such a construct has been refused.
func (p *pipeline) SetMember(profile string, _ uint32, _ *target.ActionCall, _ bool) error {
	return none("action profile", profile)
}
func (p *pipeline) DeleteMember(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *pipeline) Members(profile string) (map[uint32]target.ActionCall, error) {
	return nil, none("action profile", profile)
}
func (p *pipeline) SetGroup(profile string, _ uint32, _ []target.WeightedMember, _ bool) error {
	return none("action profile", profile)
}
func (p *pipeline) DeleteGroup(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *pipeline) Groups(profile string) (map[uint32][]target.WeightedMember, error) {
	return nil, none("action profile", profile)
}
