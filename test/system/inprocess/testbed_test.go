package inprocess

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/topologytest"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	switchp4rt "github.com/netcraq/netcraq/switch/p4rt"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/test/system/lab"
)

// A testbed is a network in this process, for stories about the controller that need a data plane:
// real switches (the interp engine behind the real P4Runtime server) on cables in memory. It needs
// no root, no namespace and no other process, and the whole of it comes up in a tenth of a second.
// What hangs on engines, interfaces or processes is not shown by it: the end-to-end tests do that.

// testbed is switches s1 to sn in a line, each with a host at port 1; chains as a layout says.
type testbed struct {
	t        *testing.T
	layout   lab.Layout
	dir      string
	state    string // the controller's file
	file     string // the topology
	switches []*bedSwitch
	cables   map[bedPort]bedPort

	mu      sync.Mutex
	work    []func() // frames on their way
	wake    chan struct{}
	replies map[uint16]chan *wire.Packet // of the hosts' requests, by UDP port
	port    uint16
}

type bedPort struct{ sw, port int }

// bedSwitch is one switch. It implements target.Device.
type bedSwitch struct {
	bed  *testbed
	n    int // from 1
	addr string

	mu       sync.Mutex
	born     time.Time
	pipe     *interp.Pipeline
	packetIn func([]byte)
	server   *grpc.Server
	awake    chan struct{} // closed while it is not stopped as by SIGSTOP
	mute     bool          // packets come to nothing, while P4Runtime works
	// wrote is told of each entry that a controller has written, before the controller hears of it;
	// nil: nobody is.
	wrote func(table string, e *target.TableEntry)
	loads func()        // is called before it loads a program; nil: nothing
	buf   interp.Buffer // the testbed's goroutine's
}

const bedCPUPort = 510

// newTestbed starts the switches of a layout, of which only the number of switches and the chains
// count.
func newTestbed(t *testing.T, l lab.Layout) *testbed {
	t.Helper()
	x := &testbed{t: t, layout: l, dir: t.TempDir(), cables: map[bedPort]bedPort{}, wake: make(chan struct{},
		1), replies: map[uint16]chan *wire.Packet{}, port: 20000}
	x.state, x.file = filepath.Join(x.dir, "state.json"), filepath.Join(x.dir, "net.json")
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go x.run(done)
	compiled, err := filepath.Abs("../../../p4src/compiled/netcraq-128")
	if err != nil {
		t.Fatal(err)
	}
	var links [][]string
	var switches, hosts, chains []topologytest.Object
	for i := 1; i <= l.N; i++ {
		s := &bedSwitch{bed: x, n: i}
		x.switches = append(x.switches, s)
		s.start()
		t.Cleanup(s.kill)
		name := fmt.Sprintf("s%d", i)
		switches = append(switches, topologytest.Object{"name": name, "p4runtime": s.addr, "deviceId": i, "address": lab.SwitchAddr(i).String()})
		hosts = append(hosts, topologytest.Object{"name": fmt.Sprintf("h%d", i), "ip": lab.HostAddr(i).String(),
			"mac": lab.HostMAC(i), "port": name + ":1"})
		if i > 1 {
			links = append(links, []string{fmt.Sprintf("s%d:3", i-1), name + ":2"})
			a, b := bedPort{i - 1, 3}, bedPort{i, 2}
			x.cables[a], x.cables[b] = b, a
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

// change changes the topology for controllers that are started from now on.
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

// run delivers frames, one after the other.
func (x *testbed) run(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-x.wake:
		}
		for {
			x.mu.Lock()
			work := x.work
			x.work = nil
			x.mu.Unlock()
			if len(work) == 0 {
				break
			}
			for _, f := range work {
				f()
			}
		}
	}
}

func (x *testbed) deliver(f func()) {
	x.mu.Lock()
	x.work = append(x.work, f)
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// leaves takes a frame that leaves a switch. The testbed's goroutine calls it.
func (x *testbed) leaves(s *bedSwitch, port uint32, frame []byte) {
	frame = slices.Clone(frame)
	if to, ok := x.cables[bedPort{s.n, int(port)}]; ok {
		x.deliver(func() { x.switches[to.sw-1].process(uint32(to.port), frame) })
		return
	}
	f, payload, err := wire.ParseFrame(frame)
	p := new(wire.Packet)
	if err != nil || p.Unmarshal(payload, wire.Profile128) != nil {
		return
	}
	p.Value = slices.Clone(p.Value)
	x.mu.Lock()
	ch := x.replies[f.Dst.Port()]
	x.mu.Unlock()
	select {
	case ch <- p:
	default: // nobody waits for it any more
	}
}

// keysFile is where the controller keeps the keys.
func (x *testbed) keysFile() string { return filepath.Join(x.dir, "state.keys.json") }

func readOf(key uint32) *wire.Packet {
	return &wire.Packet{Op: wire.Read, Key: wire.Key(key), Request: 1}
}

// ask sends a request from the host at a switch, a few times, and gives the first answer that does
// not ask to try again.
func (x *testbed) ask(host int, to netip.Addr, p *wire.Packet) (*wire.Packet, error) {
	return x.askTimes(20, host, to, p)
}

// once is a read that is sent once.
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

// askFor sends a request once, and waits for so long for the answer.
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
	x.deliver(func() { x.switches[host-1].process(1, frame) })
	select {
	case r := <-replies:
		return r, nil
	case <-time.After(patience):
		return nil, errors.New("no answer")
	}
}

// read asks for a key, and write writes it, at an address, from the host at switch 1.
func (x *testbed) read(to netip.Addr, key uint32) (*wire.Packet, error) {
	return x.ask(1, to, readOf(key))
}

func (x *testbed) write(to netip.Addr, s *api.Session, key uint32, value string) (*wire.Packet, error) {
	p := &wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: s.ID, Request: s.NextRequest, Value: []byte(value)}
	s.NextRequest++
	return x.ask(1, to, p)
}

// mustWrite is write that has to succeed.
func (x *testbed) mustWrite(to netip.Addr, s *api.Session, key uint32, value string) {
	x.t.Helper()
	if r, err := x.write(to, s, key, value); err != nil || r.Status != wire.OK {
		x.t.Fatalf("writing %#x: %+v, %v", key, r, err)
	}
}

// ---- The switches ----

// start is the process being started, with nothing in it.
func (s *bedSwitch) start() {
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.bed.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr().String()
	s.born, s.pipe, s.packetIn = time.Now(), nil, nil
	s.awake = make(chan struct{})
	close(s.awake)
	s.server = grpc.NewServer(switchp4rt.ServerOptions()...)
	server := s.server
	serve := switchp4rt.New(&bedDevice{s}, switchp4rt.Options{DeviceID: uint64(s.n),
		Log: slog.New(slog.DiscardHandler)})
	serve.Register(server)
	go server.Serve(bedListener{l, s})
}

// kill is kill -9.
func (s *bedSwitch) kill() {
	s.resume()
	s.mu.Lock()
	server := s.server
	s.pipe, s.packetIn = nil, nil
	s.mu.Unlock()
	server.Stop()
}

// suspend is SIGSTOP: the kernel takes connections and what is sent by them, and nobody answers.
// resume is SIGCONT.
func (s *bedSwitch) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awake = make(chan struct{})
}

func (s *bedSwitch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.awake:
	default:
		close(s.awake)
	}
}

// stopped says whether it is suspended, and gives a channel that is closed when it is not.
func (s *bedSwitch) stopped() (bool, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.awake:
		return false, s.awake
	default:
		return true, s.awake
	}
}

// process takes a frame that comes in by a port. The testbed's goroutine calls it.
func (s *bedSwitch) process(port uint32, frame []byte) {
	s.mu.Lock()
	pipe, born, mute := s.pipe, s.born, s.mute
	s.mu.Unlock()
	if stopped, _ := s.stopped(); pipe == nil || stopped || mute {
		return
	}
	pipe.ProcessInto(&s.buf, time.Since(born), port, frame)
	for _, o := range s.buf.Outs {
		if o.Port != bedCPUPort {
			s.bed.leaves(s, o.Port, o.Frame)
			continue
		}
		s.mu.Lock()
		packetIn := s.packetIn
		s.mu.Unlock()
		if packetIn != nil {
			packetIn(slices.Clone(o.Frame))
		}
	}
}

// keys is the key_index entries of a switch: the slots, by KEY_ID.
func (s *bedSwitch) keys() map[uint32]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]int{}
	if s.pipe == nil {
		return out
	}
	all, err := s.pipe.Entries("NetcraqIngress.pipeline.chain.key_index")
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

// bedDevice is a switch as its P4Runtime server sees it.
type bedDevice struct{ s *bedSwitch }

func (d *bedDevice) Engine() string { return "interp, in the test" }
func (d *bedDevice) Verify(prog *bmv2json.Program) error {
	return interp.Verify(prog, interp.Options{})
}
func (d *bedDevice) AddPort(target.Port) error                  { return nil }
func (d *bedDevice) RemovePort(uint32) error                    { return nil }
func (d *bedDevice) Ports() map[target.Port]target.PortCounters { return nil }
func (d *bedDevice) OnDigest(func(target.Digest))               {}
func (d *bedDevice) Now() time.Duration                         { return time.Since(d.s.born) }
func (d *bedDevice) Close() error                               { return nil }

func (d *bedDevice) OnPacketIn(f func([]byte)) { d.s.packetIn = f } // at the start, which has the lock

func (d *bedDevice) Commit(prog *bmv2json.Program) error {
	p, err := d.Prepare(prog)
	if err != nil {
		return err
	}
	return d.Activate(p, nil)
}

func (d *bedDevice) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	return interp.New(prog, interp.Options{})
}

func (d *bedDevice) Activate(p target.Pipeline, handOver func() error) error {
	d.s.mu.Lock()
	loads := d.s.loads
	d.s.mu.Unlock()
	if loads != nil {
		loads()
	}
	done := make(chan error, 1)
	d.s.bed.deliver(func() { // between two frames
		var err error
		if handOver != nil {
			err = handOver()
		}
		if err == nil {
			d.s.mu.Lock()
			d.s.pipe = p.(*interp.Pipeline)
			d.s.mu.Unlock()
		}
		done <- err
	})
	return <-done
}

func (d *bedDevice) Pipeline() target.Pipeline {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.pipe == nil {
		return nil
	}
	return bedPipeline{d.s.pipe, d.s}
}

// bedPipeline is a pipeline as its P4Runtime server sees it.
type bedPipeline struct {
	*interp.Pipeline
	s *bedSwitch
}

func (p bedPipeline) InsertEntry(table string, e *target.TableEntry) error {
	return p.tell(table, e, p.Pipeline.InsertEntry(table, e))
}

func (p bedPipeline) ModifyEntry(table string, e *target.TableEntry) error {
	return p.tell(table, e, p.Pipeline.ModifyEntry(table, e))
}

func (p bedPipeline) tell(table string, e *target.TableEntry, err error) error {
	p.s.mu.Lock()
	wrote := p.s.wrote
	p.s.mu.Unlock()
	if err == nil && wrote != nil {
		wrote(table, e)
	}
	return err
}

func (d *bedDevice) PacketOut(frame []byte) error {
	d.s.bed.deliver(func() { d.s.process(bedCPUPort, frame) })
	return nil
}

// bedListener makes connections of a switch that can be suspended.
type bedListener struct {
	net.Listener
	s *bedSwitch
}

func (l bedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return bedConn{c, l.s}, nil
}

type bedConn struct {
	net.Conn
	s *bedSwitch
}

func (c bedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, awake := c.s.stopped()
	<-awake
	return n, err
}

func (c bedConn) Write(b []byte) (int, error) {
	_, awake := c.s.stopped()
	<-awake
	return c.Conn.Write(b)
}

// ---- The controller ----

// controller starts a controller with the state that is in the testbed's file.
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
