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

// State is the mapping of the map "state": the data that outlives a packet, shared with the
// programs.
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
	// The mapping is by pages; bytes after the value are never used.
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

// FD is the map's file descriptor, for programs that use it.
func (s *State) FD() int { return s.bpf.FD() }

// word is an aligned 64-bit word of the state, which packets may read or write at any time.
func (s *State) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&s.Mem[off])) }

func (s *State) Load(off int) uint64     { return atomic.LoadUint64(s.word(off)) }
func (s *State) Store(off int, v uint64) { atomic.StoreUint64(s.word(off), v) }

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h

// WaitForPackets returns when every program that was running when it was called has ended: an RCU
// grace period of the kernel, for which membarrier(2) waits.
func WaitForPackets() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		// the kernel does not support this (or has nohz_full CPUs); sleep longer than any packet
		// takes
		time.Sleep(100 * time.Millisecond)
	}
}
