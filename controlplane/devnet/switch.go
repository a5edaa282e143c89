package devnet

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/p4rtserver"
	"github.com/netcraq/netcraq/switch/target"
)

// Switch is one switch of a network. It is safe for concurrent use.
type Switch struct {
	network *Network
	number  int
	buf     interp.Buffer // only the network's goroutine uses it

	mu       sync.Mutex
	addr     string // address of the P4Runtime server, which stays the same when the switch starts again
	born     time.Time
	pipe     *interp.Pipeline // nil if no program is loaded or the switch is dead
	packetIn func([]byte)
	server   *grpc.Server
	listener net.Listener
	awake    chan struct{} // closed unless the switch is suspended
	mute     bool
	onWrite  func(table string, e *target.TableEntry)
	onLoad   func()
}

// Number returns the switch's number in its network, which is also its P4Runtime device id.
func (s *Switch) Number() int { return s.number }

// Address returns the HOST:PORT of the switch's P4Runtime server, on the loopback interface.
func (s *Switch) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Start starts a switch that was killed. The switch has no program, and has its former address.
func (s *Switch) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	s.born, s.pipe, s.packetIn = time.Now(), nil, nil
	s.awake = make(chan struct{})
	close(s.awake)
	s.listener = l
	s.server = grpc.NewServer(p4rtserver.ServerOptions()...)
	server := s.server
	p4rtserver.New(&device{s: s}, p4rtserver.Options{DeviceID: uint64(s.number), Log: slog.New(slog.DiscardHandler)}).
		Register(server)
	go func() { _ = server.Serve(listener{l, s}) }() // Serve ends when Kill closes the listener
	return nil
}

// Kill ends a switch as kill -9 ends a process. The switch's state is lost, and its connections are
// closed.
func (s *Switch) Kill() {
	s.Resume()
	s.mu.Lock()
	server, l := s.server, s.listener
	s.pipe, s.packetIn = nil, nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
		l.Close() // close the listener in case the server had not begun to serve
	}
}

// Suspend stops a switch as SIGSTOP stops a process. Connections stay open, and nothing answers.
func (s *Switch) Suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awake = make(chan struct{})
}

// Resume lets a suspended switch continue.
func (s *Switch) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awake == nil {
		return
	}
	select {
	case <-s.awake:
	default:
		close(s.awake)
	}
}

// suspended reports whether the switch is suspended. It also returns a channel that Resume closes.
func (s *Switch) suspended() (bool, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.awake:
		return false, s.awake
	default:
		return true, s.awake
	}
}

// SetMute makes a switch drop every frame while its P4Runtime server continues. SetMute(false) ends
// this state.
func (s *Switch) SetMute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = on
}

// OnWrite makes the switch call f with each table entry that a controller has written, before the
// controller gets its answer. If f is nil, the switch stops doing so.
func (s *Switch) OnWrite(f func(table string, e *target.TableEntry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWrite = f
}

// OnLoad makes the switch call f before it loads a program. If f is nil, the switch stops doing so.
func (s *Switch) OnLoad(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLoad = f
}

// Pipeline returns the loaded program with its tables, or nil if no program is loaded.
func (s *Switch) Pipeline() *interp.Pipeline {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pipe
}

// process handles a frame that enters by a port. The network's goroutine calls it.
func (s *Switch) process(port uint32, frame []byte) {
	s.mu.Lock()
	pipe, born, mute := s.pipe, s.born, s.mute
	s.mu.Unlock()
	if pipe == nil || mute {
		return
	}
	if stopped, _ := s.suspended(); stopped {
		return
	}
	pipe.ProcessInto(&s.buf, time.Since(born), port, frame)
	for _, o := range s.buf.Outs {
		if o.Port != CPUPort {
			s.network.forward(Port{s.number, o.Port}, o.Frame)
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

// device is a switch as its P4Runtime server sees it. It implements target.Device.
type device struct {
	s *Switch

	// Verify compiles a program, which takes a tenth of a second. The field verified keeps the
	// result for Prepare.
	mu       sync.Mutex
	verified *bmv2json.Program
	compiled *interp.Pipeline
}

func (d *device) Engine() string { return "interp, in this process" }

func (d *device) Verify(prog *bmv2json.Program) error {
	p, err := interp.New(prog, interp.Options{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.verified, d.compiled = prog, p
	return err
}

func (d *device) AddPort(target.Port) error                  { return nil }
func (d *device) RemovePort(uint32) error                    { return nil }
func (d *device) Ports() map[target.Port]target.PortCounters { return nil }
func (d *device) OnDigest(func(target.Digest))               {}
func (d *device) Now() time.Duration                         { return time.Since(d.s.born) }
func (d *device) Close() error                               { return nil }

// Start calls OnPacketIn while it holds the lock.
func (d *device) OnPacketIn(f func([]byte)) { d.s.packetIn = f }

func (d *device) Commit(prog *bmv2json.Program) error {
	p, err := d.Prepare(prog)
	if err != nil {
		return err
	}
	return d.Activate(p, nil)
}

func (d *device) Prepare(prog *bmv2json.Program) (target.Pipeline, error) {
	d.mu.Lock()
	verified, compiled := d.verified, d.compiled
	d.verified, d.compiled = nil, nil
	d.mu.Unlock()
	if verified == prog && compiled != nil {
		return compiled, nil
	}
	return interp.New(prog, interp.Options{})
}

// Activate replaces the program between two frames.
func (d *device) Activate(p target.Pipeline, handOver func() error) error {
	d.s.mu.Lock()
	loads := d.s.onLoad
	d.s.mu.Unlock()
	if loads != nil {
		loads()
	}
	done := make(chan error, 1)
	d.s.network.do(func() {
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
	select {
	case err := <-done:
		return err
	case <-d.s.network.done:
		return errors.New("the network has ended")
	}
}

func (d *device) Pipeline() target.Pipeline {
	if p := d.s.Pipeline(); p != nil {
		return pipeline{p, d.s}
	}
	return nil
}

func (d *device) PacketOut(frame []byte) error {
	d.s.network.do(func() { d.s.process(CPUPort, frame) })
	return nil
}

// pipeline is a program as the P4Runtime server sees it. It calls OnWrite for each written entry.
type pipeline struct {
	*interp.Pipeline
	s *Switch
}

func (p pipeline) InsertEntry(table string, e *target.TableEntry) error {
	return p.report(table, e, p.Pipeline.InsertEntry(table, e))
}

func (p pipeline) ModifyEntry(table string, e *target.TableEntry) error {
	return p.report(table, e, p.Pipeline.ModifyEntry(table, e))
}

func (p pipeline) report(table string, e *target.TableEntry, err error) error {
	p.s.mu.Lock()
	wrote := p.s.onWrite
	p.s.mu.Unlock()
	if err == nil && wrote != nil {
		wrote(table, e)
	}
	return err
}

// listener accepts connections that transfer no data while the switch is suspended.
type listener struct {
	net.Listener
	s *Switch
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c, l.s}, nil
}

type conn struct {
	net.Conn
	s *Switch
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, awake := c.s.suspended()
	<-awake
	return n, err
}

func (c conn) Write(b []byte) (int, error) {
	_, awake := c.s.suspended()
	<-awake
	return c.Conn.Write(b)
}
