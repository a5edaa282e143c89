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
	// lookEvery is the interval at which the memory of all processes is checked.
	lookEvery = 20 * time.Millisecond
	// leastTogether is the smallest joint memory limit of all processes. It equals the limit of one
	// process.
	leastTogether = memory
)

// togetherMost returns the joint memory limit of all processes, in bytes. The kernel limits each
// process, but an unprivileged program cannot make it limit all processes together. If the
// container exceeds its memory limit, the kernel kills the whole container. Therefore this program
// checks the sum, and kills the process with the most memory.
var togetherMost = sync.OnceValue(func() *atomic.Uint64 {
	v := new(atomic.Uint64)
	v.Store(max(leastTogether, available()/2))
	return v
})

// MemoryTogether returns the joint memory limit of all processes for flows, in bytes. The limit is
// half of the control group's limit or, if that has no limit, half of the machine's memory. It is
// at least 1 GiB.
func MemoryTogether() uint64 { return togetherMost().Load() }

// together has all running processes.
var together struct {
	sync.Mutex
	all map[*process]struct{}
}

// join includes a process in the memory checks until it ends. The first process starts the checks.
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

// leave removes a process from the memory checks.
func (p *process) leave() {
	together.Lock()
	defer together.Unlock()
	delete(together.all, p)
}

// look kills the process with the most memory if all processes together use too much. It reports
// whether there are any processes.
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
		_ = largest.cmd.Process.Kill() // an error only means that the process has already ended
		delete(together.all, largest)
	}
	return len(together.all) > 0
}

// allocated returns the memory of the process that is not backed by files, in bytes. It returns 0
// after the process has ended.
func (p *process) allocated() uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text) // the fields are size, resident, shared and so on, in pages
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

// available returns the memory that this program may use, in bytes. It is the lowest limit of its
// control group and the groups above, or the machine's memory.
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
		// the file may contain "max", which means no limit
		if n, err2 := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil && err2 == nil {
			most = min(most, n)
		}
		if at == "/" {
			return most
		}
	}
}
