package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// Members that come back by themselves, in some runs: the machine says who and when, and the shell
// does what an operator would. The times are those of a chain in which all goes a hundred times as
// fast.

// comebacks says whether members come back in a run, and how long they must have been steady.
func (w *world) comebacks(seed uint64) {
	d := newDice(seed, diceRejoin)
	w.settleFor = pick(d, 0, 2*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond)
}

// rejoinPolicy is what a controller is made with.
func (w *world) rejoinPolicy() rejoin.Policy {
	if w.removed.rejoin {
		return rejoin.Policy{}
	}
	return rejoin.Policy{Settle: w.settleFor, Longest: 8 * w.settleFor, Forgiven: time.Second}
}

var errBusy = errors.New("keys are being moved, or put in order")

// rejoin does what the machine asks for. Whom an operator has left out it must not ask for.
func (s *shell) rejoin(a chain.Rejoin) {
	if s.w.leftOut[a.Switch] && s.w.store.leader == s.election {
		s.w.contradicted = append(s.w.contradicted, Violation{Kind: BroughtBack,
			What: fmt.Sprintf("%s brings in %s, which an operator has left out", s.name, a.Switch)})
	}
	s.w.cover.add("controller.rejoins", 1)
	op := s.bringIn(a.Switch, func(op chain.OpID) { s.rejoins[op] = a.Seq })
	if op == 0 {
		s.m.Rejoined(s.now(), a.Seq, errBusy)
	}
}

// leavesOut notes whom an operator's change has left out, when it is done.
func (s *shell) leavesOut(op chain.OpID, err error) {
	members := s.proposed[op]
	delete(s.proposed, op)
	if members == nil || err != nil || s.w.store.leader != s.election || op != s.lastSaid {
		return // an operator has said otherwise since
	}
	clear(s.w.leftOut)
	for _, n := range s.w.nodes {
		if !slices.Contains(members, n.name) {
			s.w.leftOut[n.name] = true
		}
	}
}

// whole says whether all members are there that are to be.
func (w *world) whole() bool {
	st := w.controller().status
	return w.serving() && (w.settleFor == 0 || st.Length == len(st.Config.Members))
}

// joins brings a switch that has left back into the network.
func (s *shell) joins(n *node) {
	if !s.alive || s.deposed || !s.left[n.name] {
		return
	}
	s.w.trace("operator", "%s joins the network", n.name)
	forgotten := s.forgotten[n.name]
	delete(s.left, n.name)
	delete(s.forgotten, n.name)
	s.setSwitches()
	s.flush()
	if d := s.device(n.name); forgotten && d.connected { // it is connected anew
		d.broken(d.number)
	}
}

// setSwitches tells the machine who is there.
func (s *shell) setSwitches() {
	var names []string
	for _, n := range s.w.nodes {
		if !s.forgotten[n.name] {
			names = append(names, n.name)
		}
	}
	s.m.SetSwitches(s.now(), names, s.left)
}

// forget forgets who has left and is not needed any more.
func (s *shell) forget() {
	for _, n := range s.w.nodes {
		if s.left[n.name] && !s.forgotten[n.name] && !s.m.Needs(n.name) {
			s.forgotten[n.name] = true
			s.w.cover.add("controller.forgot who left", 1)
			s.setSwitches()
			s.flush()
		}
	}
}
