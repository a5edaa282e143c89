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
	// lookEvery is how often the memory of all processes is checked.
	lookEvery = 20 * time.Millisecond
	// leastTogether is what all processes may have at least: what one may have.
	leastTogether = memory
)

// togetherMost bounds what all processes have together, in bytes. The kernel bounds each process,
// but a program without rights cannot make it bound all of them. If the container has too much
// memory, the kernel ends the whole container. So this program looks, and ends the process that has
// the most.
var togetherMost = sync.OnceValue(func() *atomic.Uint64 {
	v := new(atomic.Uint64)
	v.Store(max(leastTogether, available()/2))
	return v
})

// MemoryTogether is how many bytes all processes for flows may allocate together: half of what the
// control group or, without a limit there, the machine has for this program, and 1 GiB at least.
func MemoryTogether() uint64 { return togetherMost().Load() }

// together are the processes that run.
var together struct {
	sync.Mutex
	all map[*process]struct{}
}

// join has a process counted until it ends. The first one starts the looks.
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

// leave is join's end.
func (p *process) leave() {
	together.Lock()
	defer together.Unlock()
	delete(together.all, p)
}

// look ends the process that has the most, if all have too much. It says whether there are any.
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
		_ = largest.cmd.Process.Kill() // or it has ended by itself
		delete(together.all, largest)
	}
	return len(together.all) > 0
}

// allocated is how many bytes of memory the process has that no file has: 0 when it has ended.
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

// available is how much memory this program may use: the least limit of its control group and those
// above it, or the machine's.
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
