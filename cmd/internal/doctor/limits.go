package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	lockedNeeded = 512 << 20 // bytes of locked memory for the maps of the largest program, with a margin
	filesNeeded  = 1024
	memcgKernel  = 5<<8 | 11 // first kernel that counts maps as the control group's memory, not as locked memory
)

func limits(_ context.Context, l *look) {
	who, pid := "this process", "self"
	for _, p := range l.processes() {
		if p.name == "netcraq-agent" || p.name == "netcraq-switch" {
			who, pid = fmt.Sprintf("%s (process %d)", p.name, p.pid), strconv.Itoa(p.pid)
			break
		}
	}
	found, err := l.readLimits(pid)
	if err != nil {
		l.unseen("limits", "those of "+who, err)
		return
	}
	locked := found["Max locked memory"]
	_, version := l.kernelVersion()
	switch {
	case version >= memcgKernel || locked < 0 || locked >= lockedNeeded:
		l.ok("locked memory", "enough for eBPF's maps")
	default:
		l.problem("locked memory", "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit; from Linux 5.11 on there is no such limit",
			"%s may lock %d KiB, and on this kernel eBPF's maps count to that", who, locked>>10)
	}
	if files := found["Max open files"]; files >= 0 && files < filesNeeded {
		l.warn("open files", fmt.Sprintf("ulimit -n %d, or LimitNOFILE in the unit", 1<<16),
			"%s may have %d files open: each port of a switch, client of the node API and watch takes some", who, files)
	} else {
		l.ok("open files", "enough")
	}
}

// readLimits returns a process's soft limits by name, in bytes or counts; -1 means unlimited.
func (l *look) readLimits(pid string) (map[string]int64, error) {
	f, err := os.Open(l.proc(pid, "limits"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]int64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		for _, name := range []string{"Max locked memory", "Max open files"} {
			rest, ok := strings.CutPrefix(s.Text(), name)
			fields := strings.Fields(rest)
			if !ok || len(fields) == 0 {
				continue
			}
			out[name] = -1
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("%s is not understood", l.proc(pid, "limits"))
	}
	return out, nil
}

type process struct {
	pid  int
	name string
}

// processes returns the running processes that this process may see.
func (l *look) processes() (out []process) {
	entries, err := os.ReadDir(l.Proc)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, process{pid, l.processName(pid)})
		}
	}
	return out
}

// processName returns the name of a process's executable, or the name that the process has set. The
// kernel cuts the latter after 15 bytes.
func (l *look) processName(pid int) string {
	first, _, _ := strings.Cut(readFile(l.proc(strconv.Itoa(pid), "cmdline")), "\x00")
	comm := read(l.proc(strconv.Itoa(pid), "comm"))
	if base := first[strings.LastIndexByte(first, '/')+1:]; comm == "" || strings.HasPrefix(base, comm) {
		return base
	}
	return comm
}
