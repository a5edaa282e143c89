package controller

import (
	"errors"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Principals and realms have names for people and numbers (16 bits) for switches. A principal and a realm of one name have one number: that is how a switch knows, without looking
// anything up, that a principal may do everything in a realm of its own.

// The numbers: 0 is nobody's, and controllerNumber the controller's, whose realm is what nobody else may use.
const (
	controllerNumber = 0xFFFF
	defaultNumber    = 1 // of topology.DefaultRealm
	lastNumber       = controllerNumber - 1
)

// numbering gives numbers to names, and goes on giving a name the number that it had: switches change from one topology to the next one after the other, and a number that meant
// two things meanwhile would give the one's rights to the other. It is saved with the controller's state.
type numbering struct {
	numbers map[string]uint16
	next    uint16
}

func newNumbering(saved map[string]uint16) *numbering {
	n := &numbering{numbers: map[string]uint16{topology.DefaultRealm: defaultNumber}, next: defaultNumber + 1}
	maps.Copy(n.numbers, saved)
	for _, used := range n.numbers {
		n.next = max(n.next, used+1)
	}
	return n
}

// of is the numbers of all names in a topology.
func (n *numbering) of(t *topology.Topology) (map[string]uint16, error) {
	names := []string{topology.DefaultRealm}
	for _, h := range t.Hosts {
		if h.Principal != "" {
			names = append(names, h.Principal)
		}
	}
	for _, r := range t.Realms {
		names = append(names, r.Name)
	}
	out := map[string]uint16{}
	for _, name := range names {
		if _, ok := n.numbers[name]; !ok {
			if err := n.give(name, names); err != nil {
				return nil, err
			}
		}
		out[name] = n.numbers[name]
	}
	return out, nil
}

// give gives a name a number: one that was never given as long as there is one, and then those of names that are not used any more.
func (n *numbering) give(name string, used []string) error {
	if n.next > lastNumber {
		maps.DeleteFunc(n.numbers, func(other string, _ uint16) bool { return !slices.Contains(used, other) })
		taken := map[uint16]bool{}
		for _, m := range n.numbers {
			taken[m] = true
		}
		for m := uint16(defaultNumber + 1); m <= lastNumber; m++ {
			if !taken[m] {
				n.numbers[name] = m
				return nil
			}
		}
		return errors.New("the network has more than 65,533 principals and realms: let hosts share principals")
	}
	n.numbers[name] = n.next
	n.next++
	return nil
}
