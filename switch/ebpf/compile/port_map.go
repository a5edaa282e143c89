package compile

// Loopback is the index of the loopback interface, in every network namespace: no port, and where
// packet-outs are run.
const Loopback = 1

// Offsets in the value of the map "ports", which outlives pipelines.
const (
	MaxIfindex     = 1 << 18
	PortsByIfindex = 0       // 4 bytes each: 1 + port number; 0: not a port
	MaxPorts       = 1 << 16 //
	// 4 bytes each: the interface of a port; 0: no such port
	PortsIfindex = 4 * MaxIfindex
	// 4 bytes each: the same where the interface takes frames from XDP, else 0
	PortsXDP    = PortsIfindex + 4*MaxPorts
	PortsPassed = PortsXDP + 4*MaxPorts // 8 bytes: frames that XDP has handed over to tc
	PortsLost   = PortsPassed + 8       // 8 bytes: those of them that tc could not take
	// 8 bytes: the number of the pipeline whose programs are being replaced, 0 if none is
	PortsPrevious = PortsLost + 8
	// 4 bytes: the interface of some port, 0 if there is none
	PortsAny = PortsPrevious + 8
	// 4 bytes each: how many packets waited to be sent by the port when they were last counted
	PortsDepth = PortsAny + 8
	PortsSize  = PortsDepth + 4*MaxPorts
)
