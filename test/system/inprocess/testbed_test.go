package inprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/devnet"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// A testbed is a network in the test's process, for tests of the controller that need a data plane.
// It has real switches (the interp engine behind the real P4Runtime server) on cables in memory. It
// needs no root, no namespace and no other process, and starts in a tenth of a second. It cannot
// test anything that depends on other engines, interfaces or processes; the end-to-end tests do
// that.

// testbed has the switches s1 to sn in a line, each with a host at port 1, and the chains of a
// layout.
type testbed struct {
	t        *testing.T
	layout   lab.Layout
	dir      string
	state    string // path of the controller's state file
	file     string // path of the topology file
	network  *devnet.Network
	switches []*bedSwitch

	mu sync.Mutex
	// replies has the channels for the answers to the hosts' requests, by UDP port.
	replies map[uint16]chan *wire.Packet
	port    uint16
}

// bedSwitch is a switch of a testbed.
type bedSwitch struct {
	*devnet.Switch
	bed *testbed
}

// newTestbed starts the switches of a layout. It ignores everything in the layout except the number
// of switches and the chains.
func newTestbed(t *testing.T, l lab.Layout) *testbed {
	t.Helper()
	x := &testbed{t: t, layout: l, dir: t.TempDir(), replies: map[uint16]chan *wire.Packet{}, port: 20000}
	x.state, x.file = filepath.Join(x.dir, "state.json"), filepath.Join(x.dir, "net.json")
	x.network = devnet.New(x.left)
	t.Cleanup(x.network.Close)
	compiled, err := filepath.Abs("../../../p4src/compiled/netcraq-128")
	if err != nil {
		t.Fatal(err)
	}
	var links [][]string
	var switches, hosts, chains []topologytest.Object
	for i := 1; i <= l.N; i++ {
		s, err := x.network.AddSwitch()
		if err != nil {
			t.Fatal(err)
		}
		x.switches = append(x.switches, &bedSwitch{s, x})
		name := fmt.Sprintf("s%d", i)
		switches = append(switches, topologytest.Object{"name": name, "p4runtime": s.Address(), "deviceId": i, "address": lab.SwitchAddr(i).String()})
		hosts = append(hosts, topologytest.Object{"name": fmt.Sprintf("h%d", i), "ip": lab.HostAddr(i).String(),
			"mac": lab.HostMAC(i), "port": name + ":1"})
		if i > 1 {
			links = append(links, []string{fmt.Sprintf("s%d:3", i-1), name + ":2"})
			x.network.Connect(devnet.Port{Switch: i - 1, Number: 3}, devnet.Port{Switch: i, Number: 2})
		}
	}
	for _, c := range l.Chains {
		chains = append(chains, topologytest.Object{"id": c.ID, "name": c.Name, "address": lab.ServiceAddrOf(
			c.ID).String(), "members": lab.Names(c.Members), "leaseMillis": c.Lease, "patienceMillis": c.Patience})
	}
	b, err := json.Marshal(topologytest.Object{"program": topologytest.Object{"json": compiled + ".json.gz",
		"p4info": compiled + ".p4info.txtpb"}, "sessions": topologytest.Object{"ttlSeconds": 2},
		"switches": switches, "links": links, "hosts": hosts, "chains": chains})
	if err == nil {
		err = os.WriteFile(x.file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// change changes the topology for controllers that are started later.
func (x *testbed) change(f func(topologytest.Object)) {
	x.t.Helper()
	top := topologytest.Object{}
	b, err := os.ReadFile(x.file)
	if err == nil {
		err = json.Unmarshal(b, &top)
	}
	if err == nil {
		f(top)
		b, err = json.Marshal(top)
	}
	if err == nil {
		err = os.WriteFile(x.file, b, 0o600)
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

// left delivers a frame that has left the network to the host that waits for it.
func (x *testbed) left(_ devnet.Port, frame []byte) {
	f, payload, err := wire.ParseFrame(frame)
	p := new(wire.Packet)
	if err != nil || p.Unmarshal(payload, wire.Profile128) != nil {
		return
	}
	p.Value = slices.Clone(p.Value)
	x.mu.Lock() // held during the send, because a caller that stops waiting closes the channel
	defer x.mu.Unlock()
	select {
	case x.replies[f.Dst.Port()] <- p:
	default: // no caller waits for this frame any more
	}
}

// keysFile returns the path of the file in which the controller keeps the keys.
func (x *testbed) keysFile() string { return filepath.Join(x.dir, "state.keys.json") }

func readOf(key uint32) *wire.Packet {
	return &wire.Packet{Op: wire.Read, Key: wire.Key(key), Request: 1}
}

// ask sends a request several times from the host at a switch, and returns the first answer that
// does not ask for a retry.
func (x *testbed) ask(host int, to netip.Addr, p *wire.Packet) (*wire.Packet, error) {
	return x.askTimes(20, host, to, p)
}

// once sends a single read from the host at a switch, and returns the answer.
func (x *testbed) once(host int, to netip.Addr, key uint32) (*wire.Packet, error) {
	return x.askTimes(1, host, to, readOf(key))
}

func (x *testbed) askTimes(times, host int, to netip.Addr, p *wire.Packet) (last *wire.Packet, err error) {
	for range times {
		r, failed := x.askFor(50*time.Millisecond, host, to, p)
		if failed != nil {
			continue
		}
		if last = r; r.Status != wire.Retry && r.Status != wire.NotServing {
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	if last == nil {
		err = errors.New("no answer")
	}
	return last, err
}

// askFor sends a request once, and waits for the answer for the given time.
func (x *testbed) askFor(patience time.Duration, host int, to netip.Addr, p *wire.Packet) (*wire.Packet, error) {
	payload, err := p.Marshal(wire.Profile128)
	if err != nil {
		return nil, err
	}
	replies := make(chan *wire.Packet, 16)
	x.mu.Lock()
	x.port++
	port := x.port
	x.replies[port] = replies
	x.mu.Unlock()
	f := wire.Frame{Src: netip.AddrPortFrom(lab.HostAddr(host), port), Dst: netip.AddrPortFrom(to, wire.Port),
		EthernetSrc: [6]byte{2, 0, 0, 0, 0, byte(host)}}
	frame, err := f.AppendTo(nil, payload)
	if err != nil {
		return nil, err
	}
	x.network.Inject(devnet.Port{Switch: host, Number: 1}, frame)
	select {
	case r := <-replies:
		return r, nil
	case <-time.After(patience):
		return nil, errors.New("no answer")
	}
}

// read reads a key at an address, from the host at switch 1. The function write writes a key in the
// same way.
func (x *testbed) read(to netip.Addr, key uint32) (*wire.Packet, error) {
	return x.ask(1, to, readOf(key))
}

func (x *testbed) write(to netip.Addr, s *admin.Session, key uint32, value string) (*wire.Packet, error) {
	p := &wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: s.ID, Request: s.NextRequest, Value: []byte(value)}
	s.NextRequest++
	return x.ask(1, to, p)
}

// mustWrite writes a key, and fails the test if the write does not succeed.
func (x *testbed) mustWrite(to netip.Addr, s *admin.Session, key uint32, value string) {
	x.t.Helper()
	if r, err := x.write(to, s, key, value); err != nil || r.Status != wire.OK {
		x.t.Fatalf("writing %#x: %+v, %v", key, r, err)
	}
}

// ---- The switches ----

// start starts the switch again.
func (s *bedSwitch) start() {
	if err := s.Start(); err != nil {
		s.bed.t.Fatal(err)
	}
}

// keys returns the slots of the keys at a switch, by KEY_ID. It reads the entries of the table
// key_index.
func (s *bedSwitch) keys() map[uint32]int {
	out := map[uint32]int{}
	pipe := s.Pipeline()
	if pipe == nil {
		return out
	}
	all, err := pipe.Entries("NetcraqIngress.pipeline.chain.key_index")
	if err != nil {
		s.bed.t.Fatal(err)
	}
	for _, e := range all {
		out[uint32(number64(e.Match[0].Value))] = int(number64(e.Action.Params[0]))
	}
	return out
}

func number64(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// ---- The controller ----

// controller starts a controller with the state in the testbed's file.
func (x *testbed) controller() *lab.Controller { return x.controllerWith(saved.File(x.state)) }

func (x *testbed) controllerWith(store saved.Store) *lab.Controller {
	x.t.Helper()
	top, err := topology.Load(x.file)
	if err != nil {
		x.t.Fatal(err)
	}
	c, err := controller.New(controller.Options{Topology: top, Store: store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.t.Fatal(err)
	}
	return lab.Serve(x.t, c)
}
