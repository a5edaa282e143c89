package tableplan

import (
	"fmt"
	"maps"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Principals and realms have names for people and numbers (16 bits) for switches. A principal and a
// realm of one name have one number: that is how a switch knows, without looking anything up, that
// a principal may do everything in a realm of its own.

// The numbers: 0 is nobody's, and controllerNumber the controller's, whose realm nobody else may
// use. Others have 15 bits: while only the controller may write a key, its entry has its realm with
// ClosedKey. (In a key's entry controllerNumber is that as well, for the realm lastNumber+1, which
// is nobody's.) The entry of a key that is hidden from clients has hiddenKey, which is ClosedKey
// without a realm.
const (
	controllerNumber = 0xFFFF
	defaultNumber    = 1 // of topology.DefaultRealm
	ClosedKey        = 0x8000
	hiddenKey        = ClosedKey
	lastNumber       = ClosedKey - 2
)

// Numbering gives numbers to names, and continues giving a name the number that it had: switches
// change from one topology to the next one after the other, and a number that meant two things
// meanwhile would give the one's rights to the other. It is saved with the controller's state.
type Numbering struct {
	numbers map[string]uint16
	next    uint16
}

// NewNumbering continues with numbers that were given before (nil: none were).
func NewNumbering(saved map[string]uint16) *Numbering {
	n := &Numbering{numbers: map[string]uint16{topology.DefaultRealm: defaultNumber}, next: defaultNumber + 1}
	maps.Copy(n.numbers, saved)
	// of a version that gave more
	maps.DeleteFunc(n.numbers, func(_ string, number uint16) bool { return number > lastNumber })
	for _, used := range n.numbers {
		n.next = max(n.next, used+1)
	}
	return n
}

// Numbers is the numbers that names have, to be saved.
func (n *Numbering) Numbers() map[string]uint16 { return maps.Clone(n.numbers) }

// of is the numbers of all names in a topology. New names are given numbers that never were, as
// long as there are any, and then those of names that are no longer used.
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
		n.next = controllerNumber // all have been given
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
