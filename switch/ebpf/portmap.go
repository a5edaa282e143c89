package ebpf

import (
	"sync/atomic"
	"unsafe"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
)

// portMap is the map "ports", which outlives pipelines: which interface is which port, where programs and the process find it.
type portMap struct{ *state }

func newPortMap() (*portMap, error) {
	s, err := newState(compile.PortsSize)
	if err != nil {
		return nil, err
	}
	return &portMap{s}, nil
}

// noPort is nobody's number.
const noPort = ^uint32(0)

// set stores 4 bytes that packets may read at any time.
func (m *portMap) set(at int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&m.mem[at])), v)
}

// setPort makes frames of an interface those of a port; those of noPort are nobody's.
func (m *portMap) setPort(ifindex int, number uint32) {
	m.set(compile.PortsByIfindex+ifindex*4, number+1)
}

// setInterface makes an interface that of a port; 0 is none. some is the interface of any port, 0 if there is none.
func (m *portMap) setInterface(number uint32, ifindex, some int) {
	m.set(compile.PortsIfindex+int(number)*4, uint32(ifindex))
	m.set(compile.PortsAny, uint32(some))
}

// setXDP makes an interface one that XDP sends a port's frames by; 0: they go by tc.
func (m *portMap) setXDP(number uint32, ifindex int) {
	m.set(compile.PortsXDP+int(number)*4, uint32(ifindex))
}

// setPrevious names the pipeline whose programs are being replaced; 0: none is.
func (m *portMap) setPrevious(pipeline uint64) { m.store(compile.PortsPrevious, pipeline) }

// passed is how many frames XDP has passed to tc, lost how many of them tc could not take.
func (m *portMap) passed() uint64 { return m.load(compile.PortsPassed) }
func (m *portMap) lost() uint64   { return m.load(compile.PortsLost) }
