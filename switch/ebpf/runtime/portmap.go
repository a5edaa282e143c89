package runtime

import (
	"sync/atomic"
	"unsafe"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// PortMap is the map "ports", which outlives pipelines. It maps interfaces to ports and back, for
// programs and for the process.
type PortMap struct{ *State }

func newPortMap() (*PortMap, error) {
	s, err := NewState(memory.PortsSize)
	if err != nil {
		return nil, err
	}
	return &PortMap{s}, nil
}

// NoPort stands for no port.
const NoPort = ^uint32(0)

// set stores 4 bytes that packets may read at any time.
func (m *PortMap) set(at int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&m.Mem[at])), v)
}

// SetPort assigns an interface's frames to a port; with NoPort, to none.
func (m *PortMap) SetPort(ifindex int, number uint32) {
	m.set(memory.PortsByIfindex+ifindex*4, number+1)
}

// SetInterface assigns an interface to a port; 0 is none. some is the interface of any port, 0 if
// there is none.
func (m *PortMap) SetInterface(number uint32, ifindex, some int) {
	m.set(memory.PortsIfindex+int(number)*4, uint32(ifindex))
	m.set(memory.PortsAny, uint32(some))
}

// SetXDP sets the interface through which XDP sends a port's frames; 0: they go through tc.
func (m *PortMap) SetXDP(number uint32, ifindex int) {
	m.set(memory.PortsXDP+int(number)*4, uint32(ifindex))
}

// SetDepth says how many packets wait to be sent by a port.
func (m *PortMap) SetDepth(number, depth uint32) {
	if number < memory.MaxPorts {
		m.set(memory.PortsDepth+int(number)*4, depth)
	}
}

// SetPrevious names the pipeline whose programs are being replaced; 0: none.
func (m *PortMap) SetPrevious(pipeline uint64) { m.Store(memory.PortsPrevious, pipeline) }

// Passed returns how many frames XDP has passed to tc, and Lost how many of these tc could not
// continue.
func (m *PortMap) Passed() uint64 { return m.Load(memory.PortsPassed) }
func (m *PortMap) Lost() uint64   { return m.Load(memory.PortsLost) }
