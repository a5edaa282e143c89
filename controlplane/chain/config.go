package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Time is the time since the controller started, on a clock that never goes back.
type Time = time.Duration

// Role is a switch's part in a chain, with the numbers of the P4 program (8 bits).
type Role uint8

// These are the roles of docs/protocol.md.
const (
	None     Role = 0
	Replica  Role = 1
	Head     Role = 2
	Tail     Role = 3
	HeadTail Role = 4 // a switch that is the only member of its chain
	Shadow   Role = 5 // a switch after the tail that is being filled
)

func (r Role) String() string {
	if names := [...]string{"NONE", "REPLICA", "HEAD", "TAIL", "HEAD_TAIL", "SHADOW"}; int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("ROLE(%d)", uint8(r))
}

// Member reports whether writes pass a switch of this role. Such a switch has the chain's data,
// unless it is being filled (Assignment.Filling).
func (r Role) Member() bool { return r == Replica || r == Head || r == Tail || r == HeadTail }

// Freeze says which members refuse writes.
type Freeze uint8

const (
	Thawed Freeze = iota
	// the head accepts no new writes; writes in flight continue, so the chain drains
	FreezeHead
	FreezeAll // no switch accepts a write
)

func (f Freeze) String() string { return [...]string{"", "head frozen", "frozen"}[f] }

// MaxEpoch is the highest epoch. It has this value because epochs have 16 bits.
const MaxEpoch = 1<<16 - 1

// reserved is how many epochs are kept for essential changes of a chain, which are failovers and
// thawing. When only these epochs are left, other changes are refused.
const reserved = 1024

// usedUp tells the operator what to do when only reserved epochs are left.
const usedUp = "nothing but failovers is possible any more; begin anew with emptied switches (docs/operations.md, \"Epochs\")"

// Config is one configuration of a chain.
type Config struct {
	Epoch   uint16        `json:"epoch"`
	Members []string      `json:"members"` // ordered from head to tail
	Freeze  Freeze        `json:"freeze,omitempty"`
	Lease   time.Duration `json:"lease"` // nanoseconds in JSON; 0 means that members need no lease
	// Shadow is the switch that is being brought in, "" if there is none. It is not one of Members.
	Shadow string `json:"shadow,omitempty"`
	// Filling says that writes pass Shadow on their way to the tail, while the controller copies
	// earlier writes into it. Shadow answers no client, and does not count as a member. A
	// controller that does not support Filling sees a shadow and removes it from the chain, which
	// is safe.
	Filling bool `json:"filling,omitempty"`
}

// Assignment is a switch's part of a configuration. It is the switch's chain_config entry, with
// names of switches in place of addresses.
type Assignment struct {
	Role             Role
	Frozen           bool
	LeaseRequired    bool
	Epoch            uint16
	Head, Next, Tail string // Next is "" at the tail, and at switches outside the chain
}

// Filling reports whether a switch with this part is being filled. Writes pass such a switch, and
// it may lack earlier writes. Only such a replica has the same switch as head and tail, so a
// controller without a record can recognize it. Clients are not sent to it. If a client writes to
// it anyway, the tail answers NOT_SERVING.
func (a Assignment) Filling() bool { return a.Role == Replica && a.Head == a.Tail }

// Holds reports whether a switch with this part has the chain's data, so that it may answer.
func (a Assignment) Holds() bool { return a.Role.Member() && !a.Filling() }

// Assignment returns a switch's part of the configuration. A switch that is not in the
// configuration has role NONE.
func (c Config) Assignment(sw string) Assignment {
	way := c.way()
	last := len(way) - 1
	a := Assignment{Epoch: c.Epoch, Head: way[0], Tail: way[last]}
	i := slices.Index(way, sw)
	if i < 0 {
		if sw == c.Shadow {
			a.Role = Shadow
		}
		return a
	}
	a.Frozen = c.Freeze == FreezeAll || c.Freeze == FreezeHead && i == 0
	a.LeaseRequired = c.Lease > 0
	switch {
	case last == 0:
		a.Role = HeadTail
	case i == 0:
		a.Role = Head
	case i == last:
		a.Role = Tail
	default:
		a.Role = Replica
	}
	if i < last {
		a.Next = way[i+1]
	}
	if c.Filling && sw == c.Shadow {
		// The switch that is being filled must not answer. So it needs a lease, even in a chain
		// whose members need none, but it gets none.
		a.Head, a.LeaseRequired = a.Tail, true
	}
	return a
}

// way lists the switches that writes pass, head first. These are the members and, before the tail,
// the switch that is being filled.
func (c Config) way() []string {
	if !c.Filling {
		return c.Members
	}
	return slices.Insert(slices.Clone(c.Members), len(c.Members)-1, c.Shadow)
}

// Learners lists the switches that receive the tail's commits: the members and the shadow. The
// shadow comes last if writes do not pass it.
func (c Config) Learners() []string {
	out := slices.Clone(c.way())
	if c.Shadow != "" && !c.Filling {
		out = append(out, c.Shadow)
	}
	return out
}

// IsMember reports whether a switch is a member.
func (c Config) IsMember(sw string) bool { return slices.Contains(c.Members, sw) }

func (c Config) String() string {
	s := fmt.Sprintf("epoch %d: %s", c.Epoch, strings.Join(c.Members, " -> "))
	switch {
	case c.Filling:
		s += " (filling " + c.Shadow + ")"
	case c.Shadow != "":
		s += " (shadow " + c.Shadow + ")"
	}
	if c.Lease > 0 {
		s += fmt.Sprintf(", lease %v", c.Lease)
	} else {
		s += ", no leases"
	}
	if c.Freeze != Thawed {
		s += ", " + c.Freeze.String()
	}
	return s
}

func (a Assignment) String() string {
	s := fmt.Sprintf("%v epoch %d head %s", a.Role, a.Epoch, a.Head)
	if a.Next != "" {
		s += " next " + a.Next
	}
	s += " tail " + a.Tail
	if a.LeaseRequired {
		s += " leased"
	}
	if a.Frozen {
		s += " frozen"
	}
	return s
}

// Record is the state that must survive the controller. It is written before a configuration is
// installed, and again when all members have it.
type Record struct {
	Config    Config `json:"config"`
	Installed bool   `json:"installed"`
	// Blank says that no switch holds data of the chain. Either the chain is new, or everything was
	// lost. Any switch may become a member until Config is installed.
	Blank bool `json:"blank,omitempty"`
	// Fence lists switches that were members before and are not in Config. No part of Config may be
	// installed until they are fenced. FenceLease is the longest lease from an earlier
	// configuration that any switch can still hold, if it is longer than Config's lease.
	Fence      []string      `json:"fence,omitempty"`
	FenceLease time.Duration `json:"fenceLease,omitempty"`
	// Wanted lists the intended members, including those that were lost and will come back. Records
	// of earlier releases lack it.
	Wanted []string `json:"wanted,omitempty"`
	// Since maps each of Config's members to the epoch in which it became one. If a switch left and
	// came back, its content from the earlier membership does not count. In records of earlier
	// releases Since is absent, and only content with Config's epoch counts.
	Since map[string]uint16 `json:"since,omitempty"`
}

// intended returns the intended members that a record lists. A record without Wanted does not list
// the switches that an earlier controller had given up, or that an operator had left out.
func (r *Record) intended() []string {
	out := slices.Clone(r.Wanted)
	for _, s := range r.Config.Members {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
