package flowproc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is the interval between checks of the memory of all processes.
	lookEvery = 20 * time.Millisecond
	// leastTogether is the minimum of the processes' joint limit: the limit of one process.
	leastTogether = memory
)

// togetherMost is the joint memory limit of all processes, in bytes. The kernel limits each
// process, but an unprivileged program cannot make it limit all of them together. If the container
// exceeds its memory limit, the kernel kills the whole container. So this program checks the total,
// and kills the process with the most memory.
var togetherMost = sync.OnceValue(func() *atomic.Uint64 {
	v := new(atomic.Uint64)
	v.Store(max(leastTogether, available()/2))
	return v
})

// MemoryTogether is the joint memory limit of all processes for flows, in bytes: half of the
// control group's or, without a limit there, of the machine's memory, and at least 1 GiB.
func MemoryTogether() uint64 { return togetherMost().Load() }

// together are the running processes.
var together struct {
	sync.Mutex
	all map[*process]struct{}
}

// join includes a process in the checks until it ends. The first process starts them.
func (p *process) join() {
	together.Lock()
	defer together.Unlock()
	if together.all == nil {
		together.all = map[*process]struct{}{}
	}
	together.all[p] = struct{}{}
	if len(together.all) == 1 {
		go func() {
			for looks := time.NewTicker(lookEvery); look(); <-looks.C {
			}
		}()
	}
}

// leave is the reverse of join.
func (p *process) leave() {
	together.Lock()
	defer together.Unlock()
	delete(together.all, p)
}

// look kills the process with the most memory if all together have too much. It reports whether
// there are any processes.
func look() bool {
	together.Lock()
	defer together.Unlock()
	var sum, most uint64
	var largest *process
	for p := range together.all {
		n := p.allocated()
		if sum += n; n > most {
			most, largest = n, p
		}
	}
	if sum > MemoryTogether() {
		largest.over.Store(true)
		_ = largest.cmd.Process.Kill() // an error means that it has ended by itself
		delete(together.all, largest)
	}
	return len(together.all) > 0
}

// allocated is the process's memory that is not backed by files, in bytes; 0 after its end.
func (p *process) allocated() uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text) // size, resident, shared, ... in pages
	if len(fields) < 3 {
		return 0
	}
	resident, err1 := strconv.ParseUint(string(fields[1]), 10, 64)
	shared, err2 := strconv.ParseUint(string(fields[2]), 10, 64)
	if err1 != nil || err2 != nil || shared > resident {
		return 0
	}
	return (resident - shared) * uint64(os.Getpagesize())
}

// available is the memory that this program may use: the lowest limit of its control group and
// those above it, or the machine's memory.
func available() uint64 {
	var info unix.Sysinfo_t
	most := uint64(1 << 62)
	if unix.Sysinfo(&info) == nil {
		most = uint64(info.Totalram) * uint64(info.Unit)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return most
	}
	_, path, found := bytes.Cut(own, []byte("0::"))
	if !found {
		return most
	}
	path, _, _ = bytes.Cut(path, []byte("\n"))
	for at := filepath.Clean("/" + string(path)); ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", at, "memory.max"))
		if n, err2 := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil && err2 == nil { // not "max"
			most = min(most, n)
		}
		if at == "/" {
			return most
		}
	}
}
