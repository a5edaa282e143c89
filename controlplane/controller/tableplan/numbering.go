package tableplan

import (
	"fmt"
	"maps"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Principals and realms have names for people, and 16-bit numbers for switches. A principal and a
// realm with the same name have the same number. So a switch knows without a table lookup that a
// principal may do everything in its own realm.

// Some numbers have a fixed meaning. 0 means nobody. controllerNumber is the controller's number;
// no other principal may use its realm. All other numbers have 15 bits, because while only the
// controller may write a key, the key's entry has its realm combined with ClosedKey. (In a key's
// entry controllerNumber equals ClosedKey combined with the unused realm lastNumber+1.) The entry
// of a key that is hidden from clients has hiddenKey, which is ClosedKey without a realm.
const (
	controllerNumber = 0xFFFF
	defaultNumber    = 1 // number of topology.DefaultRealm
	ClosedKey        = 0x8000
	hiddenKey        = ClosedKey
	lastNumber       = ClosedKey - 2
)

// Numbering gives numbers to names, and keeps them. Switches change to a new topology one after the
// other. If a number changed its meaning, one name would have another name's rights meanwhile. The
// controller saves the Numbering with its state.
type Numbering struct {
	numbers map[string]uint16
	next    uint16
}

// NewNumbering continues with the numbers that were given before. They are nil if no number was
// given yet.
func NewNumbering(saved map[string]uint16) *Numbering {
	n := &Numbering{numbers: map[string]uint16{topology.DefaultRealm: defaultNumber}, next: defaultNumber + 1}
	maps.Copy(n.numbers, saved)
	// An earlier version, which gave higher numbers, may have saved these numbers.
	maps.DeleteFunc(n.numbers, func(_ string, number uint16) bool { return number > lastNumber })
	for _, used := range n.numbers {
		n.next = max(n.next, used+1)
	}
	return n
}

// Numbers returns the numbers by name, in the form that is saved.
func (n *Numbering) Numbers() map[string]uint16 { return maps.Clone(n.numbers) }

// of returns the numbers of all names in a topology. New names get numbers that were never given.
// When no such number is left, they get numbers of names that are no longer used.
func (n *Numbering) of(t *topology.Topology) (map[string]uint16, error) {
	out := map[string]uint16{topology.DefaultRealm: defaultNumber}
	var missing []string
	see := func(name string) {
		number, known := n.numbers[name]
		if _, seen := out[name]; name == "" || seen {
			return
		}
		if out[name] = number; !known {
			missing = append(missing, name)
		}
	}
	for _, h := range t.Hosts {
		see(h.Principal)
	}
	for _, r := range t.Realms {
		see(r.Name)
	}
	var free []uint16
	if len(missing) > lastNumber-int(n.next)+1 {
		maps.DeleteFunc(n.numbers, func(name string, _ uint16) bool { _, used := out[name]; return !used })
		taken := map[uint16]bool{}
		for _, number := range n.numbers {
			taken[number] = true
		}
		for number := defaultNumber + 1; number <= lastNumber; number++ {
			if !taken[uint16(number)] {
				free = append(free, uint16(number))
			}
		}
		if len(missing) > len(free) {
			return nil, fmt.Errorf("the network has %d principals and realms, and switches know %d: let hosts share principals", len(out), lastNumber)
		}
		n.next = controllerNumber // all numbers have been given
	}
	for i, name := range missing {
		number := n.next
		if free != nil {
			number = free[i]
		} else {
			n.next++
		}
		n.numbers[name], out[name] = number, number
	}
	return out, nil
}
