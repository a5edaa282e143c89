package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child. Its output is read as lines.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   chan string
	ended chan struct{}
}

// run starts a child that dies with this process.
func (b *bench) run(name string, args ...string) (*process, error) {
	return b.runTo(nil, name, args...)
}

// runTo is run with a receiver of what the child writes to its standard error.
func (b *bench) runTo(events io.Writer, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), out: make(chan string, 16), ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.cmd.Stderr = events; events == nil {
		p.cmd.Stderr = os.Stderr
	}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	b.all = append(b.all, p)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			p.out <- lines.Text()
		}
		close(p.out)
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// line returns the child's next line of output.
func (p *process) line(ctx context.Context) (string, error) {
	select {
	case l, ok := <-p.out:
		if !ok {
			return "", errors.New("it has ended")
		}
		return l, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// until reads lines until one starts with a prefix.
func (p *process) until(ctx context.Context, prefix string) error {
	for {
		l, err := p.line(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %q of %s: %w", prefix, p.cmd.Path, err)
		}
		if strings.HasPrefix(l, prefix) {
			return nil
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.out { // until it has ended
	}
	<-p.ended
}

// stop ends the child in order.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	for range p.out {
	}
	<-p.ended
}

// ticks is how many of the kernel's units of processor time a second has (USER_HZ).
const ticks = 100

// cpu returns the processor time that the child has used.
func (p *process) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name, which may contain spaces.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum, nil
}

// memory returns the child's resident memory in bytes.
func (p *process) memory() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("the kernel does not say how much memory it has")
}
