package podroutes

import "fmt"

// MTU is that of a node's pods, in bytes: what the interface with the node's address has, less what
// a tunnel takes where there may be one.
func MTU(self Node, mode Mode) (int, error) {
	l, err := sourceLink(self.Address)
	if err != nil {
		return 0, fmt.Errorf("finding the pods' MTU: %w", err)
	}
	if mode == Direct {
		return l.Attrs().MTU, nil
	}
	return l.Attrs().MTU - VXLANOverhead, nil
}
