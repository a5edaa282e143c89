package paths

import (
	"slices"
)

// inOrder lists the steps from a first step on, in topological order.
func inOrder(first *Step) (order []*Step) {
	seen := map[*Step]bool{}
	var visit func(*Step)
	visit = func(s *Step) {
		if seen[s] {
			return
		}
		seen[s] = true
		for _, n := range slices.Backward(s.Next) {
			visit(n)
		}
		order = append(order, s)
	}
	visit(first)
	slices.Reverse(order)
	for i, s := range order {
		s.order = i
	}
	return order
}

// findInside marks the steps between the first step that accesses a register and the last, on each
// path.
func findInside(order []*Step) {
	touches := func(s *Step) bool {
		return s.Kind == StepPrimitive &&
			(s.Primitive.Op == "register_read" || s.Primitive.Op == "register_write")
	}
	before, after := make([]bool, len(order)), make([]bool, len(order))
	for i, s := range order {
		before[i] = before[i] || touches(s)
		for _, n := range s.Next {
			before[n.order] = before[n.order] || before[i]
		}
	}
	for i, s := range slices.Backward(order) {
		after[i] = touches(s)
		for _, n := range s.Next {
			after[i] = after[i] || after[n.order]
		}
		s.Inside = before[i] && after[i]
	}
}
