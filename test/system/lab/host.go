package lab

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
)

const ReplyTimeout = time.Second

// Read sends a read of a key to an address, which is that of a switch or of the chain.
func (h *Host) Read(at netip.Addr, key uint32) (*wire.Packet, error) {
	return h.Ask(at, &wire.Packet{Op: wire.Read, Key: wire.Key(key), Request: 7}, ReplyTimeout)
}

// ReadAll reads keys at an address, many at a time, and reports wrong values. Like a client, it
// repeats lost reads, because BMv2's queues hold only 64 packets. It returns the number of repeated
// reads.
func (h *Host) ReadAll(at netip.Addr, keys []admin.Key, want func(name string) string) uint64 {
	h.t.Helper()
	window := make(chan struct{}, 32)
	var again atomic.Uint64
	var wg sync.WaitGroup
	for _, k := range keys {
		window <- struct{}{}
		wg.Go(func() {
			defer func() { <-window }()
			r, err := h.Read(at, k.KeyID)
			for n := 0; err != nil && n < 3; n++ {
				again.Add(1)
				r, err = h.Read(at, k.KeyID)
			}
			if err != nil {
				h.t.Errorf("%s at %v: %v", k.Name, at, err)
			} else if r.Status != wire.OK || string(r.Value) != want(k.Name) {
				h.t.Errorf("%s at %v: %v, want %q", k.Name, at, r, want(k.Name))
			}
		})
	}
	wg.Wait()
	return again.Load()
}

// Inside runs a function in the network namespace of a host. Sockets that it opens stay in that
// namespace.
func (h *Host) Inside(do func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := netns.GetFromPid(h.Cmd.Process.Pid)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return err
	}
	defer netns.Set(here)
	do()
	return nil
}

// Host is a process in its own network namespace. It sends packets for the test.
type Host struct {
	t       *testing.T
	profile wire.Profile
	Cmd     *exec.Cmd
	in      io.WriteCloser
	mu      sync.Mutex
	next    int
	waits   map[int]chan hostReply
	closed  chan struct{}
}

type HostRequest struct {
	ID      int
	To      netip.AddrPort
	Payload []byte
	Timeout time.Duration
	Work    *Workload // workload to run instead of sending a packet
	Watch   *Watch    // watch to run instead of sending a packet
	Named   *NamedWork
	Kept    *KeptWork
	Spy     *Spy
}

type hostReply struct {
	ID      int
	From    netip.AddrPort
	Payload []byte
	History []linearizable.Call
	Answers []int64 // times of a watch's answers
	Named   []linearizable.Call
	Kept    []linearizable.Call
	Locked  []Section
	Seen    Seen
	Err     string
}

func startHost(t *testing.T, n int, profile wire.Profile) *Host {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	h := startHostProcess(t, profile, cmd)
	ifc := fmt.Sprintf("h%d", n)
	pid := fmt.Sprint(h.Cmd.Process.Pid)
	sh(t, "ip", "link", "set", ifc, "netns", pid)
	// All addresses are behind the switch. So there is one route, through a neighbour whose
	// Ethernet address does not matter.
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "set", ifc, "address", HostMAC(n)},
		{"ip", "addr", "add", HostAddr(n).String() + "/32", "dev", ifc},
		{"ip", "link", "set", ifc, "up"},
		{"ip", "route", "add", "10.0.0.0/8", "dev", ifc, "via", "10.255.255.254", "onlink"},
		{"ip", "neigh", "add", "10.255.255.254", "lladdr", "02:00:00:00:ff:ff", "dev", ifc},
	} {
		sh(t, "nsenter", append([]string{"--net=/proc/" + pid + "/ns/net", "--"}, args...)...)
	}
	return h
}

// startHostProcess starts a process that runs hostMain.
func startHostProcess(t *testing.T, profile wire.Profile, cmd *exec.Cmd) *Host {
	t.Helper()
	h := &Host{t: t, profile: profile, Cmd: cmd, waits: map[int]chan hostReply{}, closed: make(chan struct{})}
	cmd.Env = append(os.Environ(), envHost+"=1")
	cmd.Stderr = os.Stderr
	var err error
	if h.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	go h.receive(out)
	return h
}

func (h *Host) receive(out io.Reader) {
	defer close(h.closed)
	d := json.NewDecoder(bufio.NewReader(out))
	for {
		var r hostReply
		if d.Decode(&r) != nil {
			return
		}
		h.mu.Lock()
		ch := h.waits[r.ID]
		delete(h.waits, r.ID)
		h.mu.Unlock()
		ch <- r
	}
}

// Ask sends one packet and returns its answer, or an error if no answer comes in time.
func (h *Host) Ask(to netip.Addr, p *wire.Packet, timeout time.Duration) (*wire.Packet, error) {
	payload, err := p.Marshal(h.profile)
	if err != nil {
		return nil, err
	}
	r, err := h.Request(HostRequest{To: netip.AddrPortFrom(to, wire.Port), Payload: payload, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	out := new(wire.Packet)
	return out, out.Unmarshal(r.Payload, h.profile)
}

// Request sends a request to the host process and returns its reply.
func (h *Host) Request(req HostRequest) (hostReply, error) {
	ch := make(chan hostReply, 1)
	h.mu.Lock()
	h.next++
	req.ID = h.next
	h.waits[req.ID] = ch
	b, err := json.Marshal(req)
	if err == nil {
		_, err = h.in.Write(append(b, '\n'))
	}
	h.mu.Unlock()
	if err != nil {
		return hostReply{}, err
	}
	select {
	case r := <-ch:
		if r.Err != "" {
			return r, errors.New(r.Err)
		}
		return r, nil
	case <-h.closed:
		return hostReply{}, errors.New("the host process ended")
	}
}

// hostMain runs a host process. It reads requests from stdin and writes replies to stdout. Each
// request gets its own socket.
func hostMain() {
	var mu sync.Mutex
	enc := json.NewEncoder(os.Stdout)
	d := json.NewDecoder(bufio.NewReader(os.Stdin))
	limit := make(chan struct{}, 64)
	for {
		var req HostRequest
		if d.Decode(&req) != nil {
			return
		}
		limit <- struct{}{}
		go func() {
			defer func() { <-limit }()
			var r hostReply
			var err error
			switch {
			case req.Work != nil:
				r.History, err = req.Work.run()
			case req.Watch != nil:
				r.Answers, err = req.Watch.run()
			case req.Named != nil:
				r.Named, err = req.Named.run()
			case req.Kept != nil:
				r.Kept, r.Locked = req.Kept.run()
			case req.Spy != nil:
				r.Seen, err = req.Spy.run()
			default:
				r = exchangeUDP(req)
			}
			if err != nil {
				r.Err = err.Error()
			}
			r.ID = req.ID
			mu.Lock()
			defer mu.Unlock()
			enc.Encode(r)
		}()
	}
}

func exchangeUDP(req HostRequest) hostReply {
	r := hostReply{ID: req.ID}
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	defer conn.Close()
	if _, err := conn.WriteToUDPAddrPort(req.Payload, req.To); err != nil {
		r.Err = err.Error()
		return r
	}
	conn.SetReadDeadline(time.Now().Add(req.Timeout))
	b := make([]byte, 2048)
	n, from, err := conn.ReadFromUDPAddrPort(b)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	r.From, r.Payload = from, b[:n]
	return r
}

// Work runs a workload on the host.
func (h *Host) Work(w Workload) ([]linearizable.Call, error) {
	r, err := h.Request(HostRequest{Work: &w})
	return r.History, err
}

// StartGuest starts another process in the namespace of a host. A test can stop this process while
// the host process continues.
func StartGuest(t *testing.T, at *Host) *Host {
	t.Helper()
	cmd := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", at.Cmd.Process.Pid), "--", os.Args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return startHostProcess(t, at.profile, cmd)
}
