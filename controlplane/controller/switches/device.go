package switches

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Device is one switch: its connection, a worker that executes jobs on it one after the other, and
// its known content.
type Device struct {
	Spec *topology.Switch
	*ops.Switch
	Client   *p4rt.Client
	owner    Owner
	prog     *program.Program
	log      *slog.Logger
	requests *Requests
	first    p4rt.ElectionID
	sender   chan []byte // frames to send as packet-outs
	// leases holds LEASEs, which are sent before the frames in sender, so that a switch that is
	// being filled does not lose its lease.
	leases chan []byte

	mu    sync.Mutex
	jobs  []func(context.Context)
	wake  chan struct{}
	quit  chan struct{} // closed when the switch has left
	ended bool          // whether run has ended
	late  sync.Mutex    // held by jobs that are submitted after run has ended

	// other describes the program that the switch runs, if that is a compatible program other than
	// this one. It is nil if the switch runs this program.
	other   atomic.Pointer[program.Kin]
	replace atomic.Bool // the switch runs another program, and must get this program now
	stale   atomic.Bool // a refresh is waiting for the worker
	// watchesStale says that an update of the watch tables is waiting for the worker.
	watchesStale atomic.Bool
	heard        atomic.Int64 // when a packet last came from the switch (by Owner.Now)
	worked       atomic.Int64 // when a call to the switch was last answered
	unsent       atomic.Uint64

	// These fields hold what the worker knows to be in the switch: entries by table and match, and
	// groups.
	loadedAt int // the connection (p4rt.State.Stream) in which the content was read; 0: it must be read again
	setUpAt  int // the connection in which the switch got everything that follows from the topology; 0: none yet
	freshAt  int // the connection in which the program was last loaded
	entries  map[string]map[string]*v1.TableEntry
	groups   map[uint32]p4rt.Group
	rates    map[int]int64 // limits of host ports, in packets per second
	open     bool          // access grants everything to all hosts
	// peersOpen says that the switch accepts chain messages from ports without a chain_peer entry.
	peersOpen bool
	peered    map[uint8]bool         // chains whose chain_peer entries were written in this connection
	swept     []uint8                // chains that have no entries of an earlier chain with the same id in the switch
	parts     map[uint8]chain.Config // each chain's configuration at the last install in this connection

	// placed holds the known key_index entries, by chain. The controller's goroutine also reads it.
	placedMu sync.Mutex
	placed   map[uint8]map[wire.Key]ops.Entry
}

// Options are common to all devices of a controller.
type Options struct {
	Owner    Owner
	Program  *program.Program
	Requests *Requests
	// Election is the election id for the first stream to the switch.
	Election p4rt.ElectionID
	// TLS is the TLS configuration for switches, each with its own server name. If nil, connections
	// use plain text.
	TLS *tls.Config
	// RPCTimeout bounds each P4Runtime request. If it is 0, the default of p4rt.Options applies.
	RPCTimeout time.Duration
	Log        *slog.Logger
}

// New returns a device. It connects when Run runs.
func New(o Options, sw *topology.Switch) (*Device, error) {
	d := &Device{Spec: sw, owner: o.Owner, prog: o.Program, log: o.Log, requests: o.Requests, first: o.Election,
		sender: make(chan []byte, 1024), leases: make(chan []byte, 64),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), parts: map[uint8]chain.Config{}}
	d.Switch = ops.NewSwitch(sw.Name, NewGoroutines(o.Owner.Now), target{d})
	var err error
	var complaints streamErrors
	d.Client, err = p4rt.New(p4rt.Options{
		Name: sw.Name, Target: sw.P4Runtime, DeviceID: sw.DeviceID, ElectionID: o.Election,
		Info: o.Program.Pipeline.Info, Log: o.Log,
		TLS:        tlsFor(o.TLS, sw),
		RPCTimeout: o.RPCTimeout,
		MaxBackoff: 500 * time.Millisecond, // a short limit, so that a restarted switch is connected again soon
	}, p4rt.Handler{
		StateChanged: func(s p4rt.State) { o.Owner.Post(func() { o.Owner.Connection(d, s) }) },
		PacketIn:     func(p p4rt.PacketIn) { d.packetIn(p.Payload) },
		StreamError: func(err error) { // only one goroutine calls this function
			if text := complaints.message(o.Owner.Now(), err); text != "" {
				o.Owner.Post(func() { o.Owner.Event("switch.stream-error", d, text) })
			}
		},
	})
	return d, err
}

// Heard reports whether a packet came from the switch within a time.
func (d *Device) Heard(within time.Duration) bool { return lately(d.owner.Now(), &d.heard, within) }

// Worked reports whether a call to the switch was answered within a time.
func (d *Device) Worked(within time.Duration) bool { return lately(d.owner.Now(), &d.worked, within) }

// Unsent returns how many packets to the switch the controller has dropped since it started. It
// drops a packet if too many are waiting, or if the stream to the switch ends before the packet is
// sent. Unsent does not count packets that were refused because there was no stream.
func (d *Device) Unsent() uint64 { return d.unsent.Load() }

// NextElection returns the lower half of an election id that is above all ids that this connection
// has used or may be about to use.
func (d *Device) NextElection() uint64 { return d.first.Low + uint64(d.Client.State().Stream) + 1 }

// Stop ends run. The worker's remaining jobs fail, as if the switch were out of reach.
func (d *Device) Stop() { close(d.quit) }

// send queues a frame for the switch's pipeline, without waiting. The packet may be lost.
func (d *Device) send(frame []byte) error { return d.queue(d.sender, frame) }

// SendLease sends a LEASE ahead of all other waiting packets.
func (d *Device) SendLease(p *wire.Packet) error {
	frame, err := d.frame(leasePort, p)
	if err != nil {
		return err
	}
	return d.queue(d.leases, frame)
}

func (d *Device) queue(q chan []byte, frame []byte) error {
	if s := d.Client.State(); s.Phase != p4rt.Primary {
		return fmt.Errorf("%s is not connected: %w", d.Spec.Name, errors.Join(s.Err, ErrNotConnected))
	}
	select {
	case q <- frame:
		return nil
	default:
		d.unsent.Add(1)
		return fmt.Errorf("%s: too many packets wait to be sent to it", d.Spec.Name)
	}
}

// ErrNotConnected says that the switch cannot be reached now. The caller should try again when it
// can.
var ErrNotConnected = errors.New("the controller has no stream to it, or is not its primary")

// sendQueued sends queued frames on a goroutine of its own, so that a stuck stream delays nothing
// else.
func (d *Device) sendQueued(ctx context.Context) {
	for {
		var f []byte
		select {
		case f = <-d.leases:
		default:
			select {
			case <-ctx.Done():
				return
			case f = <-d.leases:
			case f = <-d.sender:
			}
		}
		if err := d.Client.PacketOut(f, map[string]uint64{"submit_to_ingress": 1}); err != nil {
			d.unsent.Add(1)
			d.log.Debug("packet not sent", "switch", d.Spec.Name, "error", err)
		}
	}
}

// Passing reports whether an error may go away by itself, because the switch was out of reach and
// did not refuse anything.
func Passing(err error) bool {
	for _, e := range []error{ErrNotConnected, ops.ErrNotDeleted, p4rt.ErrNotPrimary, p4rt.ErrNotConnected,
		p4rt.ErrOutcomeUnknown, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	var we *p4rt.WriteError
	if errors.As(err, &we) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.PermissionDenied:
		return true
	}
	return false
}

// lately reports whether the event whose time is in noted happened within the given time.
func lately(now chain.Time, noted *atomic.Int64, within time.Duration) bool {
	at := noted.Load()
	return at != 0 && now-time.Duration(at) < within
}
