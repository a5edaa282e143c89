package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// This file runs programs in the namespaces of hosts. It also makes links to hosts in addition to
// the data network.

// Beside connects a host with the test's namespace by a link, for traffic that does not pass
// through the switches. It returns the addresses of both ends of the link.
func (nw *Network) Beside(host int) (here, there netip.Addr) {
	nw.T.Helper()
	here = netip.AddrFrom4([4]byte{172, 31, byte(host), 1})
	there = here.Next()
	outer, process := fmt.Sprintf("beside%d", host), nw.Hosts[host-1].Cmd.Process.Pid
	sh(nw.T, "ip", "link", "add", outer, "type", "veth", "peer", "name", "beside", "netns", fmt.Sprint(process))
	sh(nw.T, "ip", "addr", "add", here.String()+"/30", "dev", outer)
	sh(nw.T, "ip", "link", "set", outer, "up")
	inside := []string{fmt.Sprintf("--net=/proc/%d/ns/net", process), "--", "ip"}
	sh(nw.T, "nsenter", append(inside, "addr", "add", there.String()+"/30", "dev", "beside")...)
	sh(nw.T, "nsenter", append(inside, "link", "set", "beside", "up")...)
	return here, there
}

// Forward listens at the address `from`, and forwards TCP connections to the address `to`, until
// the test ends.
func Forward(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					out.Close()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
}

// Dir returns the folder of the network's files, which include the controller's socket.
func (nw *Network) Dir() string { return nw.dir }

// Process is a running command.
type Process struct {
	Stop  func()          // ends the process with SIGTERM, as an operator does, and waits for its end
	Ended <-chan struct{} // closed when the process has ended
}

// Run starts a command in the namespace of a host. If the test fails, the test's log has the
// command's output.
func (nw *Network) Run(host int, name string, command ...string) Process {
	nw.T.Helper()
	log, err := os.OpenFile(filepath.Join(nw.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.T.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "# %s\n", strings.Join(command, " "))
	netns := fmt.Sprintf("--net=/proc/%d/ns/net", nw.Hosts[host-1].Cmd.Process.Pid)
	cmd := exec.Command("nsenter", append([]string{netns, "--"}, command...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		nw.T.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	nw.T.Cleanup(func() {
		stop()
		if nw.T.Failed() {
			b, _ := os.ReadFile(log.Name())
			nw.T.Logf("%s's log:\n%s", name, tail(b, 40))
		}
	})
	return Process{stop, ended}
}
