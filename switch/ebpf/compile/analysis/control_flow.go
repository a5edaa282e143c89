package analysis

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Nodes lists the nodes of a pipeline that control can reach, in topological order.
func Nodes(p *bmv2json.Pipeline) (order []bmv2json.Node) {
	state := map[bmv2json.Node]int{}
	var visit func(bmv2json.Node)
	visit = func(n bmv2json.Node) {
		if n == nil || state[n] == 2 {
			return
		}
		if state[n] == 1 {
			ir.Refuse(p.Path, "a control flow that goes round (%s)", n.NodeName())
		}
		state[n] = 1
		next := Successors(n)
		for i := len(next) - 1; i >= 0; i-- {
			visit(next[i])
		}
		state[n] = 2
		order = append(order, n)
	}
	visit(p.Init)
	for i, j := 0, len(order)-1; i < j; i, j = i+1, j-1 {
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// Successors returns the nodes that can follow a node. A nil successor is the end of the pipeline.
func Successors(n bmv2json.Node) []bmv2json.Node {
	switch n := n.(type) {
	case *bmv2json.Conditional:
		return []bmv2json.Node{n.True, n.False}
	case *bmv2json.ActionCall:
		return []bmv2json.Node{n.Next}
	case *bmv2json.Table:
		if n.HitMiss {
			return []bmv2json.Node{n.Hit, n.Miss}
		}
		return append(append([]bmv2json.Node{}, n.Next...), n.BaseDefaultNext)
	}
	return nil
}

// ActionsOf returns the actions that a node may run.
func ActionsOf(n bmv2json.Node) []*bmv2json.Action {
	switch n := n.(type) {
	case *bmv2json.ActionCall:
		return []*bmv2json.Action{n.Action}
	case *bmv2json.Table:
		if n.Default != nil {
			return append([]*bmv2json.Action{n.Default.Action}, n.Actions...)
		}
		return n.Actions
	}
	return nil
}

// TouchesRegister reports whether a node reads or writes registers.
func TouchesRegister(n bmv2json.Node) bool {
	for _, a := range ActionsOf(n) {
		for _, p := range a.Primitives {
			if p.Op == "register_read" || p.Op == "register_write" {
				return true
			}
		}
	}
	return false
}

// WritesRegister reports whether a node writes registers.
func WritesRegister(n bmv2json.Node) bool {
	for _, a := range ActionsOf(n) {
		for _, p := range a.Primitives {
			if p.Op == "register_write" {
				return true
			}
		}
	}
	return false
}

// LockedNodes returns the nodes inside the section in which a packet holds the registers' lock.
func LockedNodes(order []bmv2json.Node) map[bmv2json.Node]bool {
	// before[n] is set if n or an earlier node may access a register. after[n] is set if n or a
	// later node may.
	before, after := map[bmv2json.Node]bool{}, map[bmv2json.Node]bool{}
	for _, n := range order {
		before[n] = before[n] || TouchesRegister(n)
		for _, s := range Successors(n) {
			if s != nil && before[n] {
				before[s] = true
			}
		}
	}
	inside := map[bmv2json.Node]bool{}
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		after[n] = TouchesRegister(n)
		for _, s := range Successors(n) {
			after[n] = after[n] || s != nil && after[s]
		}
		inside[n] = before[n] && after[n]
	}
	return inside
}
