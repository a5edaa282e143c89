package p4rt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"golang.org/x/mod/semver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// ElectionID orders the controllers of a switch. The controller with the highest id is primary
// (P4Runtime 1.5, section 5). An ElectionID must not be zero, and no two controllers may have the
// same one.
type ElectionID struct{ High, Low uint64 }

func (e ElectionID) proto() *v1.Uint128 { return &v1.Uint128{High: e.High, Low: e.Low} }

func (e ElectionID) String() string {
	if e.High == 0 {
		return fmt.Sprint(e.Low)
	}
	return fmt.Sprintf("%d:%d", e.High, e.Low)
}

// Options say which switch to connect to, and how.
type Options struct {
	Name     string // the switch's name in messages
	Target   string // host:port of the P4Runtime server
	DeviceID uint64
	// ElectionID is the election id of the first stream. Each further stream adds 1 to Low, so
	// that late requests of an abandoned stream come from a controller that is no longer primary.
	ElectionID ElectionID
	Info       *Info // P4Info of the controller's program

	// RPCTimeout bounds each request. If it is 0, the bound is 10 s. The longest request is pushing
	// a large program to a slow target.
	RPCTimeout time.Duration
	// MinBackoff and MaxBackoff bound the wait before the client connects again. If they are 0, the
	// bounds are 100 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// BatchSize is the largest number of updates in one Write request. If it is 0, 500 updates are
	// allowed. Servers refuse messages over 4 MB unless they are configured otherwise.
	BatchSize int
	// TLS makes the client use TLS. Its RootCAs verify the switch's certificate, which must be for
	// its ServerName ("": the host of Target). Its Certificates or GetClientCertificate are for a
	// switch that requires a client certificate. If TLS is nil, the client uses plain text without
	// any authentication.
	TLS *tls.Config
	// DialOptions replace the transport options, including TLS. They are for tests.
	DialOptions []grpc.DialOption
	Log         *slog.Logger
}

// Handler receives the stream's events. Its functions run one at a time on the stream's goroutine
// and must return soon. Each function may be nil.
type Handler struct {
	StateChanged func(State)
	PacketIn     func(PacketIn)
	// StreamError receives the switch's error about a message on the stream, for example about a
	// packet-out that the switch could not send.
	StreamError func(error)
}

// Phase is the state of the connection to a switch.
type Phase int

const (
	Disconnected Phase = iota
	// The client is connected, but this controller is not primary. Reads work, and writes do not.
	Backup
	Primary
)

func (p Phase) String() string { return [...]string{"disconnected", "backup", "primary"}[p] }

// State is the state of a connection.
type State struct {
	Phase Phase
	// Stream counts the streams opened so far. If it has grown between two states, the connection
	// was lost in between.
	Stream int
	// Primary is the election id of the primary controller. It is zero if there is none, or if the
	// id is not known.
	Primary ElectionID
	// Version is the version of NetCRAQ that the switch runs, such as 0.2.0-rc1. It is empty if the
	// switch does not report a version, because it is not connected, is older than 0.1.0, or is
	// another P4Runtime server.
	Version string
	// Err says why there is no connection, if the phase is Disconnected.
	Err error
}

// These are the errors of requests that only a primary may make.
var (
	// ErrNotPrimary says that this controller is not primary, because another controller is, or
	// none. The request had no effect.
	ErrNotPrimary = errors.New("this controller is not primary at the switch")
	// ErrNotConnected says that there is no stream to the switch, or that the request's stream has
	// been replaced. The request had no effect.
	ErrNotConnected = errors.New("the switch is not connected")
	// ErrOutcomeUnknown says that the switch may have executed the request, or may still execute
	// it. The client has ended the stream (outcome.go).
	ErrOutcomeUnknown = errors.New("whether it was executed is not known")
)

// Client is a connection to one switch that reconnects by itself. Its methods are safe for
// concurrent use.
type Client struct {
	o       Options
	handler Handler
	conn    *grpc.ClientConn
	rpc     v1.P4RuntimeClient

	mu       sync.Mutex
	state    State
	election ElectionID // election id of the present stream, or of the last stream
	stream   *stream    // nil unless connected

	sendMu sync.Mutex // a stream allows one Send at a time

	told told // contents of whole registers, from the last reads
}

// New makes a client. Run connects it.
func New(o Options, h Handler) (*Client, error) {
	if o.ElectionID == (ElectionID{}) {
		return nil, fmt.Errorf("connecting to %s: the election id must not be zero", o.Name)
	}
	if o.RPCTimeout == 0 {
		o.RPCTimeout = 10 * time.Second
	}
	if o.MinBackoff == 0 {
		o.MinBackoff = 100 * time.Millisecond
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 2 * time.Second
	}
	if o.BatchSize == 0 {
		o.BatchSize = 500
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dial := o.DialOptions
	if dial == nil {
		transport := insecure.NewCredentials()
		if o.TLS != nil {
			transport = credentials.NewTLS(o.TLS)
		}
		dial = []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	}
	dial = append([]grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestMessage)),
		grpc.WithMaxHeaderListSize(largestHeader),
		// All cells of a register are megabytes, which should not have to wait for flow control
		// every 64 KiB.
		grpc.WithInitialWindowSize(8 << 20), grpc.WithInitialConnWindowSize(16 << 20),
		// The client sends a request only once. Without these options, gRPC may repeat a request
		// whose outcome is unknown, by a policy that a name's resolver can supply. gRPC still
		// repeats requests that no switch has received, because they never left or the transport
		// refused them.
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: o.MinBackoff, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: o.MaxBackoff},
			MinConnectTimeout: 2 * time.Second,
		}),
	}, dial...)
	conn, err := grpc.NewClient(o.Target, dial...)
	if err != nil {
		return nil, fmt.Errorf("%s: the P4Runtime address %q: %w", o.Name, o.Target, err)
	}
	return &Client{o: o, handler: h, conn: conn, rpc: v1.NewP4RuntimeClient(conn), election: o.ElectionID}, nil
}

// Name returns the switch's name.
func (c *Client) Name() string { return c.o.Name }

// Target returns the address of the switch's P4Runtime server.
func (c *Client) Target() string { return c.o.Target }

// Info returns the P4Info that the client works with.
func (c *Client) Info() *Info { return c.o.Info }

// State returns the present state of the connection.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// electionID returns the election id that requests carry.
func (c *Client) electionID() ElectionID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.election
}

// Run keeps the client connected until ctx ends, and then closes it.
func (c *Client) Run(ctx context.Context) {
	defer c.conn.Close()
	wait := c.o.MinBackoff
	for {
		began := time.Now()
		connected, ended, err := c.session(ctx)
		if ctx.Err() != nil {
			c.setState(State{Phase: Disconnected, Err: ctx.Err()}, nil)
			return
		}
		c.setState(State{Phase: Disconnected, Err: err}, nil)
		// If this side keeps ending streams soon after their start, the client reconnects more and
		// more slowly, because the next stream may not work either.
		if connected && (!ended || time.Since(began) > c.o.MaxBackoff) {
			wait = c.o.MinBackoff
		}
		c.o.Log.Debug("not connected", "switch", c.o.Name, "error", err, "retry", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait - time.Duration(rand.Int64N(int64(wait)/4+1))):
		}
		wait = min(wait*8/5, c.o.MaxBackoff)
	}
}

// session opens a stream, arbitrates, and receives until the stream ends. It returns whether the
// switch ever answered (connected), and whether this side ended the stream (ended).
func (c *Client) session(ctx context.Context) (connected, ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	channel, err := c.rpc.StreamChannel(ctx)
	if err != nil {
		return false, false, fmt.Errorf("connecting to %s at %s: %w", c.o.Name, c.o.Target, err)
	}
	c.mu.Lock()
	c.election = ElectionID{c.o.ElectionID.High, c.o.ElectionID.Low + uint64(c.state.Stream)}
	election := c.election
	st := &stream{P4Runtime_StreamChannelClient: channel, number: c.state.Stream + 1, election: election, ctx: ctx,
		end: cancel}
	c.mu.Unlock()
	err = channel.Send(&v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Arbitration{
		Arbitration: &v1.MasterArbitrationUpdate{
			DeviceId: c.o.DeviceID, ElectionId: election.proto(),
		}}})
	if err != nil && !errors.Is(err, io.EOF) { // if Send returns EOF, Recv returns the stream's own error
		return false, false, fmt.Errorf("connecting to %s at %s: %w", c.o.Name, c.o.Target, err)
	}
	silent := fmt.Errorf("%s at %s did not answer the arbitration within %v", c.o.Name, c.o.Target, c.o.RPCTimeout)
	timer := time.AfterFunc(c.o.RPCTimeout, func() { cancel(silent) })
	defer timer.Stop()
	for {
		m, err := channel.Recv()
		if cause := context.Cause(ctx); cause != nil { // this side has ended the stream
			return connected, true, cause
		}
		if err != nil {
			return connected, false, c.streamEnd(err)
		}
		switch u := m.GetUpdate().(type) {
		case *v1.StreamMessageResponse_Arbitration:
			timer.Stop()
			c.arbitrated(st, u.Arbitration, versionIn(channel))
			connected = true
		case *v1.StreamMessageResponse_Packet:
			if c.handler.PacketIn != nil {
				c.handler.PacketIn(c.o.Info.PacketIn(u.Packet))
			}
		case *v1.StreamMessageResponse_Error:
			if c.handler.StreamError != nil {
				c.handler.StreamError(fmt.Errorf("%s: %v: %.500s", c.o.Name, codes.Code(u.Error.CanonicalCode), u.Error.Message))
			}
		}
	}
}

// streamEnd explains why the switch ended the stream.
func (c *Client) streamEnd(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s ended the stream", c.o.Name)
	case status.Code(err) == codes.InvalidArgument:
		return fmt.Errorf(
			"%s refused the arbitration (another controller may have the same election id %v): %w",
			c.o.Name,
			c.electionID(),
			err,
		)
	case status.Code(err) == codes.NotFound:
		return fmt.Errorf("%s at %s has no device with id %d (check deviceId in the topology and --device-id of the switch): %w",
			c.o.Name, c.o.Target, c.o.DeviceID, err)
	}
	return fmt.Errorf("the stream to %s at %s: %w", c.o.Name, c.o.Target, err)
}

// maxVersion is the maximum length of a switch's version, in bytes. Events and the admin API
// repeat the version, so a switch must not choose its length.
const maxVersion = 64

// versionIn returns the version of NetCRAQ from the header of a stream that has received an
// answer, or "" if the header has none.
func versionIn(channel v1.P4Runtime_StreamChannelClient) string {
	header, err := channel.Header()
	said := header.Get(buildinfo.Metadata)
	if err != nil || len(said) != 1 || len(said[0]) > maxVersion || !semver.IsValid("v"+said[0]) {
		return ""
	}
	return said[0]
}

// arbitrated handles the result of the arbitration.
func (c *Client) arbitrated(st *stream, a *v1.MasterArbitrationUpdate, version string) {
	s := State{Phase: Backup, Primary: ElectionID{a.GetElectionId().GetHigh(), a.GetElectionId().GetLow()},
		Stream: st.number, Version: version}
	if codes.Code(a.GetStatus().GetCode()) == codes.OK {
		s.Phase = Primary
		s.Primary = st.election
	}
	c.setState(s, st)
}

func (c *Client) setState(s State, stream *stream) {
	c.mu.Lock()
	if s.Phase == Disconnected {
		s.Stream = c.state.Stream
	}
	changed := s.Phase != c.state.Phase || s.Stream != c.state.Stream || s.Primary != c.state.Primary ||
		(s.Err != nil && (c.state.Err == nil || s.Err.Error() != c.state.Err.Error()))
	c.state, c.stream = s, stream
	c.mu.Unlock()
	if changed && c.handler.StateChanged != nil {
		c.handler.StateChanged(s)
	}
}

// PacketOut sends a packet through the switch (see Info.PacketOut). There is no answer. If the
// switch cannot send the packet, it may report that to Handler.StreamError.
func (c *Client) PacketOut(payload []byte, metadata map[string]uint64) error {
	p, err := c.o.Info.PacketOut(payload, metadata)
	if err != nil {
		return err
	}
	return c.SendPacket(p)
}

// SendPacket sends a packet-out that has been built already.
func (c *Client) SendPacket(p *v1.PacketOut) error {
	c.mu.Lock()
	stream, phase, reason := c.stream, c.state.Phase, c.state.Err
	c.mu.Unlock()
	switch phase {
	case Disconnected:
		return fmt.Errorf("sending a packet through %s: not connected: %w", c.o.Name, reasonOr(reason))
	case Backup:
		return fmt.Errorf("sending a packet through %s: %w", c.o.Name, ErrNotPrimary)
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if err := stream.Send(&v1.StreamMessageRequest{Update: &v1.StreamMessageRequest_Packet{Packet: p}}); err != nil {
		return fmt.Errorf("sending a packet through %s: %w", c.o.Name, err)
	}
	return nil
}

func reasonOr(err error) error {
	if err == nil {
		return errors.New("it has not answered yet")
	}
	return err
}

// rpcContext limits the time of a request that has no earlier deadline.
func (c *Client) rpcContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.o.RPCTimeout)
}

// Read calls f with each entity that the switch has for the request's entities. It abandons an
// answer that is larger than the request allows (ErrAnswerTooLarge). An abandoned read has no
// lasting effect, because it changes nothing at the switch, and its answer is dropped. So it does
// not end the stream, unlike a Write with an unknown outcome.
func (c *Client) Read(ctx context.Context, f func(*v1.Entity) error, what ...*v1.Entity) error {
	ctx, cancel := c.rpcContext(ctx)
	defer cancel()
	fail := func(err error) error { return fmt.Errorf("reading from %s: %w", c.o.Name, err) }
	allowed := c.o.Info.allowance(what)
	// Some targets answer a read of all counters of a large program with a single message.
	stream, err := c.rpc.Read(ctx, &v1.ReadRequest{DeviceId: c.o.DeviceID, Entities: what},
		grpc.ForceCodec(encoded{}), grpc.MaxCallRecvMsgSize(allowed.bytes))
	if err != nil {
		return fail(err)
	}
	for {
		var b []byte
		err := stream.RecvMsg(&b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fail(err)
		}
		var failed error // the error of f, which is returned unchanged
		err = allowed.each(c.o.Info, b, func(e *v1.Entity) error {
			failed = f(e)
			return failed
		})
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return fail(err)
		}
	}
}

// ReadTable reads all entries of a table except its default.
func (c *Client) ReadTable(ctx context.Context, table string) ([]*v1.TableEntry, error) {
	t, err := c.o.Info.tables.find(table)
	if err != nil {
		return nil, err
	}
	var out []*v1.TableEntry
	err = c.Read(ctx, func(e *v1.Entity) error {
		if te := e.GetTableEntry(); te != nil && !te.IsDefaultAction {
			out = append(out, te)
		}
		return nil
	}, EntryEntity(&v1.TableEntry{TableId: t.Preamble.Id}))
	return out, err
}

// ReadDefault reads the default entry of a table. It returns nil if the switch does not return a
// default entry.
func (c *Client) ReadDefault(ctx context.Context, table string) (*v1.TableEntry, error) {
	t, err := c.o.Info.tables.find(table)
	if err != nil {
		return nil, err
	}
	var out *v1.TableEntry
	err = c.Read(ctx, func(e *v1.Entity) error {
		if te := e.GetTableEntry(); te.GetIsDefaultAction() {
			out = te
		}
		return nil
	}, EntryEntity(&v1.TableEntry{TableId: t.Preamble.Id, IsDefaultAction: true}))
	return out, err
}

// ReadGroups reads all multicast groups.
func (c *Client) ReadGroups(ctx context.Context) ([]Group, error) {
	var out []Group
	err := c.Read(ctx, func(e *v1.Entity) error {
		if g, ok := DecodeGroup(e); ok {
			out = append(out, g)
		}
		return nil
	}, groupEntity(&v1.MulticastGroupEntry{}))
	return out, err
}

// ReadMeter reads the peak rates (packets or bytes per second) of the configured cells of a meter.
func (c *Client) ReadMeter(ctx context.Context, meter string) (map[int]int64, error) {
	m, err := c.o.Info.meters.find(meter)
	if err != nil {
		return nil, err
	}
	out := map[int]int64{}
	err = c.Read(ctx, func(e *v1.Entity) error {
		if me := e.GetMeterEntry(); me.GetConfig() != nil {
			out[int(me.GetIndex().GetIndex())] = me.Config.Pir
		}
		return nil
	}, &v1.Entity{Entity: &v1.Entity_MeterEntry{MeterEntry: &v1.MeterEntry{MeterId: m.Preamble.Id}}})
	return out, err
}

// Count is the value of one counter cell.
type Count struct{ Packets, Bytes uint64 }

// ReadCounter reads all cells of an indexed counter.
func (c *Client) ReadCounter(ctx context.Context, counter string) ([]Count, error) {
	size, err := c.o.Info.CounterSize(counter)
	if err != nil {
		return nil, err
	}
	what, err := c.o.Info.counterEntity(counter, -1)
	if err != nil {
		return nil, err
	}
	out := make([]Count, size)
	err = c.Read(ctx, func(e *v1.Entity) error {
		if i := e.GetCounterEntry().GetIndex().GetIndex(); i >= 0 && int(i) < size {
			d := e.GetCounterEntry().GetData()
			out[i] = Count{uint64(d.GetPacketCount()), uint64(d.GetByteCount())}
		}
		return nil
	}, what)
	return out, err
}

// ReadCounterCells reads some cells of an indexed counter, in the order of cells.
func (c *Client) ReadCounterCells(ctx context.Context, counter string, cells []int) ([]Count, error) {
	var what []*v1.Entity
	at := map[int64][]int{}
	for n, i := range cells {
		e, err := c.o.Info.counterEntity(counter, max(i, 0))
		if err != nil {
			return nil, err
		}
		what = append(what, e)
		at[int64(i)] = append(at[int64(i)], n)
	}
	out := make([]Count, len(cells))
	if len(cells) == 0 {
		return out, nil
	}
	err := c.Read(ctx, func(e *v1.Entity) error {
		d := e.GetCounterEntry().GetData()
		for _, n := range at[e.GetCounterEntry().GetIndex().GetIndex()] {
			out[n] = Count{uint64(d.GetPacketCount()), uint64(d.GetByteCount())}
		}
		return nil
	}, what...)
	return out, err
}

// ReadRegister reads one cell of a register. If the target does not offer registers over
// P4Runtime, IsUnsupported(err) is true.
func (c *Client) ReadRegister(ctx context.Context, register string, index int) (Value, error) {
	what, err := c.o.Info.registerEntity(register, index, nil)
	if err != nil {
		return nil, err
	}
	var out Value
	err = c.Read(ctx, func(e *v1.Entity) error {
		if r := e.GetRegisterEntry(); r != nil {
			out = Value(r.GetData().GetBitstring())
		}
		return nil
	}, what)
	if err == nil && out == nil {
		err = fmt.Errorf("reading from %s: no answer for register %s[%d]", c.o.Name, register, index)
	}
	return out, err
}

// WriteRegister sets one cell of a register. If the target does not offer registers over
// P4Runtime, IsUnsupported(err) is true.
func (c *Client) WriteRegister(ctx context.Context, register string, index int, value any) error {
	e, err := c.o.Info.registerEntity(register, index, value)
	if err != nil {
		return err
	}
	return c.Write(ctx, Modify(e))
}
