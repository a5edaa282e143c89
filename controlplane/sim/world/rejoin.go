package world

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// In some runs, members come back by themselves. The machine decides when to bring in which switch,
// and the shell does an operator's part. All times are a hundredth of the real times.

// Comebacks decides whether members come back in a run, and how long a member must have been
// steady.
func (w *World) Comebacks(seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceRejoin)
	w.SettleFor = clockwork.Pick(d, 0, 2*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond)
}

// rejoinPolicy returns the policy of a new controller's machine.
func (w *World) rejoinPolicy() rejoin.Policy {
	if w.Without.Rejoin {
		return rejoin.Policy{}
	}
	return rejoin.Policy{Settle: w.SettleFor, Longest: 8 * w.SettleFor, Forgiven: time.Second}
}

var errBusy = errors.New("keys are being moved, or put in order")

// rejoin carries out a Rejoin. The machine must not request a switch that an operator has left out.
func (s *Shell) rejoin(a chain.Rejoin) {
	if s.World.leftOut[a.Switch] && s.World.Store.leader == s.election {
		s.World.Contradicted = append(s.World.Contradicted, judge.Violation{Kind: judge.BroughtBack,
			What: fmt.Sprintf("%s brings in %s, which an operator has left out", s.Name, a.Switch)})
	}
	s.World.Cover.Count("controller.rejoins", 1)
	op := s.bringIn(a.Switch, func(op chain.OpID) { s.rejoins[op] = a.Seq })
	if op == 0 {
		s.Machine.Rejoined(s.Clock(), a.Seq, errBusy)
	}
}

// leavesOut notes the switches that an operator's change has left out, when the change is done.
func (s *Shell) leavesOut(op chain.OpID, err error) {
	members := s.proposed[op]
	delete(s.proposed, op)
	if members == nil || err != nil || s.World.Store.leader != s.election || op != s.lastSaid {
		return // the change failed, or an operator has set other members since
	}
	clear(s.World.leftOut)
	for _, n := range s.World.Nodes {
		if !slices.Contains(members, n.Name) {
			s.World.leftOut[n.Name] = true
		}
	}
}

// Whole reports whether all intended members are in the chain.
func (w *World) Whole() bool {
	st := w.Controller().Status
	return w.Serving() && (w.SettleFor == 0 || st.Length == len(st.Config.Members))
}

// Joins brings a switch that has left the network back into it.
func (s *Shell) Joins(n *Node) {
	if !s.Alive || s.Deposed || !s.Left[n.Name] {
		return
	}
	s.World.Trace("operator", "%s joins the network", n.Name)
	forgotten := s.forgotten[n.Name]
	delete(s.Left, n.Name)
	delete(s.forgotten, n.Name)
	s.SetSwitches()
	s.Flush()
	if d := s.Device(n.Name); forgotten && d.connected { // make the switch connect again
		d.Broken(d.Number)
	}
}

// SetSwitches tells the machine which switches are in the network.
func (s *Shell) SetSwitches() {
	var names []string
	for _, n := range s.World.Nodes {
		if !s.forgotten[n.Name] {
			names = append(names, n.Name)
		}
	}
	s.Machine.SetSwitches(s.Clock(), names, s.Left)
}

// forget drops switches that have left the network and that the machine no longer needs.
func (s *Shell) forget() {
	for _, n := range s.World.Nodes {
		if s.Left[n.Name] && !s.forgotten[n.Name] && !s.Machine.Needs(n.Name) {
			s.forgotten[n.Name] = true
			s.World.Cover.Count("controller.forgot who left", 1)
			s.SetSwitches()
			s.Flush()
		}
	}
}
