package runtime

import (
	"sync/atomic"
	"unsafe"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// PortMap is the map "ports", which outlives pipelines. Programs and the process use it to find the
// port of an interface and the interface of a port.
type PortMap struct{ *State }

func newPortMap() (*PortMap, error) {
	s, err := NewState(memory.PortsSize)
	if err != nil {
		return nil, err
	}
	return &PortMap{s}, nil
}

// NoPort is the port number that stands for no port.
const NoPort = ^uint32(0)

// set stores 4 bytes that packets may read at any time.
func (m *PortMap) set(at int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&m.Mem[at])), v)
}

// SetPort assigns an interface's frames to a port. NoPort assigns them to no port.
func (m *PortMap) SetPort(ifindex int, number uint32) {
	m.set(memory.PortsByIfindex+ifindex*4, number+1)
}

// SetInterface assigns an interface to a port. An ifindex of 0 stands for no interface. some is the
// interface of any port, or 0 if there is none.
func (m *PortMap) SetInterface(number uint32, ifindex, some int) {
	m.set(memory.PortsIfindex+int(number)*4, uint32(ifindex))
	m.set(memory.PortsAny, uint32(some))
}

// SetXDP sets the interface through which XDP sends a port's frames. If it is 0, the frames leave
// through tc.
func (m *PortMap) SetXDP(number uint32, ifindex int) {
	m.set(memory.PortsXDP+int(number)*4, uint32(ifindex))
}

// SetDepth sets the number of packets that wait at a port.
func (m *PortMap) SetDepth(number, depth uint32) {
	if number < memory.MaxPorts {
		m.set(memory.PortsDepth+int(number)*4, depth)
	}
}

// SetPrevious sets the pipeline whose programs are being replaced, or 0 if none are.
func (m *PortMap) SetPrevious(pipeline uint64) { m.Store(memory.PortsPrevious, pipeline) }

// Passed returns the number of frames that XDP has passed to tc. Lost returns how many of these
// frames tc could not continue.
func (m *PortMap) Passed() uint64 { return m.Load(memory.PortsPassed) }
func (m *PortMap) Lost() uint64   { return m.Load(memory.PortsLost) }
