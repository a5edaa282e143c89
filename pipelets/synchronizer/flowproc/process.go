package flowproc

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
)

const (
	// verb is the command-line argument that makes this program run as a process for flows.
	verb = "flow-process"
	// startTimeout is the time limit for starting a process.
	startTimeout = 30 * time.Second
	// grace is how long a process may run beyond a flow's time limit before it is killed.
	grace = 3 * time.Second
)

// errMemory means that a process has exceeded its memory limit.
var errMemory = fmt.Errorf("it took more than the %d MiB of memory that it may", memory>>20)

// environment is the environment of a process. DuckDB has only one thread. Go's runtime must not
// keep the files of the control group open.
var environment = []string{"GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// process is a process that runs flows, seen from its parent.
type process struct {
	cmd  *exec.Cmd
	conn net.Conn
	said head
	enc  *gob.Encoder
	dec  *gob.Decoder
	left *io.LimitedReader // limits the size of an answer
	gone chan struct{}     // closed when the process has ended
	// this program killed the process, because it used the most memory when all processes together
	// used too much
	over atomic.Bool
}

// head keeps the beginning of what a process writes to its standard error.
type head struct{ strings.Builder }

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.Builder.Write(b[:min(len(b), max(0, 4096-h.Len()))])
	return len(b), nil
}

// start starts a process. The process gets a socket as descriptor 3. It gets nothing else of this
// process, neither the environment nor the standard output.
func start(ctx context.Context) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "flows"), os.NewFile(uintptr(fds[1]), "flows")
	defer ours.Close()
	defer theirs.Close()
	p := &process{gone: make(chan struct{})}
	if p.conn, err = net.FileConn(ours); err != nil {
		return nil, err
	}
	p.left = &io.LimitedReader{R: p.conn}
	p.enc, p.dec = gob.NewEncoder(p.conn), gob.NewDecoder(p.left)
	p.cmd = exec.Command("/proc/self/exe", verb)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr, p.cmd.ExtraFiles = environment, "/", &p.said, []*os.File{theirs}
	// Use a separate process group. So the terminal's Ctrl-C reaches only this program, which then
	// ends its processes.
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.conn.Close()
		return nil, err
	}
	theirs.Close()
	p.join()
	go func() {
		p.cmd.Wait()
		p.leave()
		close(p.gone)
	}()
	var ready answer
	if err := p.exchange(ctx, nil, &ready, startTimeout); err != nil || ready.Error != "" {
		p.kill()
		return nil, fmt.Errorf("%s%s (%w)", ready.Error, p.said.String(), cmp.Or(err, io.EOF))
	}
	return p, nil
}

// kill kills the process.
func (p *process) kill() {
	p.conn.Close()
	p.cmd.Process.Kill()
	<-p.gone
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// exchange sends a request, if q is not nil, and reads an answer.
func (p *process) exchange(ctx context.Context, q *request, a *answer, limit time.Duration) error {
	if err := p.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { p.conn.SetDeadline(time.Unix(1, 0)) })
	err := func() (err error) {
		defer func() {
			if r := recover(); r != nil { // gob may panic, because it is not hardened against a malicious process
				err = fmt.Errorf("%w: %v", errWire, r)
			}
		}()
		if q != nil {
			if err := p.enc.Encode(q); err != nil {
				return err
			}
		}
		p.left.N = maxAnswer
		return p.dec.Decode(a)
	}()
	if !stop() { // the function that sets the deadline has begun, and may still change it
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// call makes the process execute a request. If it returns an error, the process is unusable. The
// error says why.
func (p *process) call(ctx context.Context, q *request, limit time.Duration) (*answer, error) {
	before := p.processorTime()
	// This limit is enforced by the kernel. It takes effect only if this program fails to end the
	// process.
	most := uint64((before+limit+grace)/time.Second) + 1
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY},
		nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("its processor time cannot be bounded: %w", err)
	}
	a := &answer{}
	clock := flow.Patience*limit + grace
	err := p.exchange(ctx, q, a, clock)
	if err == nil {
		return a, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("it took longer than %v, and did not end after a signal", clock)
	}
	p.kill()
	said, state := p.said.String(), p.cmd.ProcessState
	switch {
	case p.over.Load():
		return nil, fmt.Errorf("all flows together took more than the %d MiB of memory that they may, and this one most of it",
			MemoryTogether()>>20)
	case state.UserTime()+state.SystemTime()-before > limit+grace-time.Second || strings.Contains(said, "SIGXCPU"):
		return nil, fmt.Errorf("it computed for longer than %v", limit)
	case strings.Contains(said, "out of memory") || strings.Contains(said, "bad_alloc") ||
		strings.Contains(said, "cannot allocate"):
		return nil, errMemory
	case strings.Contains(said, "SIGSEGV"):
		return nil, errors.New("it overflowed DuckDB's stack, for example by JSON that is nested deeply")
	case errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return nil, fmt.Errorf("DuckDB failed in it, or the system was short of memory (%v)", state)
	}
	return nil, fmt.Errorf("of what it sent: %w", err)
}

// processorTime returns the processor time that the process has used.
func (p *process) processorTime() time.Duration {
	var t unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED, which selects the processor time clock of the process with a given PID
	if unix.ClockGettime(int32(^p.cmd.Process.Pid)<<3|scheduled, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
