package runtime

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func newMapIn(spec ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %q: %w", spec.Name, err)
	}
	return m, nil
}

// State is the memory mapping of the map "state", the data that outlives a packet. The process
// shares it with the programs.
type State struct {
	bpf *ebpf.Map
	Mem []byte
}

func NewState(size int) (*State, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "state", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(size), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("making a map of %d bytes for registers, counters and tables: %w",
			size, err)
	}
	// The mapping has whole pages. The bytes after the value are never used.
	page := unix.Getpagesize()
	mem, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("mapping registers, counters and tables: %w", err)
	}
	return &State{m, mem}, nil
}

func (s *State) Close() {
	if s.Mem != nil {
		_ = unix.Munmap(s.Mem)
		s.Mem = nil
	}
	s.bpf.Close()
}

// FD returns the map's file descriptor, for programs that use the map.
func (s *State) FD() int { return s.bpf.FD() }

// word returns a pointer to an aligned 64-bit word of the state. Packets may read or write the word
// at any time.
func (s *State) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&s.Mem[off])) }

func (s *State) Load(off int) uint64     { return atomic.LoadUint64(s.word(off)) }
func (s *State) Store(off int, v uint64) { atomic.StoreUint64(s.word(off), v) }

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL in linux/membarrier.h

// WaitForPackets returns once every program that was running at the time of the call has ended. It
// uses membarrier(2), which waits for an RCU grace period of the kernel.
func WaitForPackets() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		// The kernel does not support membarrier (or has nohz_full CPUs), so sleep for longer than
		// any packet takes.
		time.Sleep(100 * time.Millisecond)
	}
}
