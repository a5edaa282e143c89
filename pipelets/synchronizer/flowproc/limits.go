package flowproc

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// memory is the maximum memory of a process, in bytes. It includes DuckDB's own 512 MB, a batch
	// and the batch's rows.
	memory = 1 << 30
	// space is the maximum address space, in bytes, that a process may reserve without using it, in
	// addition to its memory.
	space = 2 << 30
)

// restrict makes the kernel limit this process. It must be called before the process receives a
// tenant's data. It fails if the kernel cannot enforce the limits.
func restrict() error {
	// With this value, the kernel kills this process first if the system runs out of memory. The
	// file may be missing.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	debug.SetMemoryLimit(memory / 4)
	mapped, data, err := size()
	if err != nil {
		return err
	}
	for limit, value := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 32,
		unix.RLIMIT_DATA: data + memory, unix.RLIMIT_AS: mapped + memory + space} {
		if err := unix.Setrlimit(limit, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("the limit %d: %w", limit, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("without core dumps: %w", err)
	}
	return filter()
}

// size returns the size of this process's address space, and of its data segments, in bytes.
func size() (mapped, data uint64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for name, value := range map[string]*uint64{"VmSize:": &mapped, "VmData:": &data} {
		_, after, _ := bytes.Cut(text, []byte(name))
		line, _, _ := bytes.Cut(after, []byte("kB"))
		if *value, err = strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/self/status: %s %w", name, err)
		}
		*value <<= 10
	}
	return mapped, data, nil
}

// allowed lists the system calls that Go's runtime, the C library and DuckDB need for computations.
// They serve memory, threads, clocks, and open descriptors. None of them can open a file, make a
// socket or a process, signal another process, or raise a limit.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_LSEEK, unix.SYS_FSTAT, unix.SYS_FCNTL,
	unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MADVISE,
	unix.SYS_MINCORE,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETCPU, unix.SYS_MEMBARRIER, unix.SYS_RSEQ,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID,
	unix.SYS_GETEGID, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_SYSINFO, unix.SYS_UNAME,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_PPOLL,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// filter makes the kernel answer EPERM to all other system calls, in all threads.
func filter() error {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return fmt.Errorf("flows do not run on %s, of which it is not known how to bound a process there", runtime.GOARCH)
	}
	// These are offsets in struct seccomp_data. The offset first is that of the lower half of the
	// first argument.
	const number, architecture, first = 0, 4, 16
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	give := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	const allow = unix.SECCOMP_RET_ALLOW
	deny, absent := uint32(unix.SECCOMP_RET_ERRNO|unix.EPERM), uint32(unix.SECCOMP_RET_ERRNO|unix.ENOSYS)
	program := []unix.SockFilter{
		load(architecture), jump(unix.BPF_JEQ, arch, 1, 0), give(unix.SECCOMP_RET_KILL_PROCESS),
		load(number),
		// Answer clone3 as if the kernel did not have it. The filter cannot check clone3's flags,
		// which are in memory. Without clone3 the C library creates threads by clone.
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), give(absent),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(first), jump(unix.BPF_JSET, unix.CLONE_THREAD, 0, 1), give(allow), give(deny),
		// Allow a signal to this process itself, which a fault raises.
		jump(unix.BPF_JEQ, unix.SYS_TGKILL, 0, 4),
		load(first), jump(unix.BPF_JEQ, uint32(os.Getpid()), 0, 1), give(allow), give(deny),
	}
	for _, n := range append(allowed, archAllowed...) {
		program = append(program, jump(unix.BPF_JEQ, n, 0, 1), give(allow))
	}
	program = append(program, give(deny))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("without new privileges: %w", err)
	}
	code := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if n, _, err := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&code))); err != 0 || n != 0 {
		return fmt.Errorf("flows need a kernel with seccomp filters (CONFIG_SECCOMP_FILTER): %w", err)
	}
	return nil
}
