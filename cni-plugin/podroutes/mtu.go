package podroutes

import "fmt"

// leastMTU6 is the minimum MTU of a link with IPv6, in bytes (RFC 8200, section 5).
const leastMTU6 = 1280

// MTU returns the MTU of a node's pods, in bytes. It is the MTU of the interface with the node's
// address, less a tunnel's overhead if there may be tunnels. (A node with both address families has
// tunnels over IPv4. It uses IPv6 only for tunnels to nodes without IPv4. For these, the kernel
// tells pods an MTU that is 20 bytes smaller, as a router does.)
func MTU(self Node, mode Mode) (int, error) {
	address := self.In(false)
	if !address.IsValid() {
		address = self.Address
	}
	l, err := sourceLink(address)
	if err != nil {
		return 0, fmt.Errorf("finding the pods' MTU: %w", err)
	}
	mtu := l.Attrs().MTU
	if mode != Direct {
		mtu -= overhead(address)
	}
	if _, six := self.end(true); six && mtu < leastMTU6 {
		return 0, fmt.Errorf("pods with IPv6 need an MTU of %d bytes, and %s leaves them %d: give it a larger one, or say --routes direct where all nodes share a link", leastMTU6, l.Attrs().Name, mtu)
	}
	return mtu, nil
}
