package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// device is one switch: its connection, a worker that writes to it one thing after the other, and
// what is known to be in it.
type device struct {
	c  *Controller
	sw *topology.Switch
	*ops.Switch
	client *p4rt.Client
	first  p4rt.ElectionID
	sender chan []byte // frames for packet-out
	leases chan []byte // the same, before all others: a switch that is being filled must not lose its lease for that

	mu    sync.Mutex
	jobs  []func(context.Context)
	wake  chan struct{}
	quit  chan struct{} // closed when the switch has left
	ended bool          // run has ended
	late  sync.Mutex    // held by jobs that come after that

	other   atomic.Pointer[kin] // it runs another program, which goes together with this one; nil: it runs this one
	replace atomic.Bool         // ... and is to get this one now
	stale   atomic.Bool         // a refresh waits for the worker
	// watchesStale: the tables of watches wait for the worker.
	watchesStale atomic.Bool
	heard        atomic.Int64 // when a packet last came from it (Controller.now)
	worked       atomic.Int64 // when a call to it was last answered

	// What the controller's goroutine knows.
	state     p4rt.State
	ready     bool // set up since it was last connected
	emptying  bool // it is being emptied, so it does not have what chains know of it
	lastError string

	// What the worker knows to be in the switch: entries by table and match, and groups.
	loadedAt int // the connection (p4rt.State.Stream) in which it was read; 0: it must be read again
	setUpAt  int // the connection in which the switch got all that follows from the topology; 0: none yet
	freshAt  int // the connection in which the program was loaded last
	entries  map[string]map[string]*v1.TableEntry
	groups   map[uint32]p4rt.Group
	rates    map[int]int64 // of host ports, packets a second
	open     bool          // everybody may do everything
	// peersOpen: the switch takes messages of chains by ports without a chain_peer entry.
	peersOpen bool
	peered    map[uint8]bool         // chains whose chain_peer entries were written in this connection
	swept     []uint8                // the chains of whose predecessors nothing is left in it
	parts     map[uint8]chain.Config // of each chain, the configuration of the last install in this connection

	// placed is the key_index entries among them, by chain: the controller's goroutine asks, too.
	placedMu sync.Mutex
	placed   map[uint8]map[wire.Key]ops.Entry
}

func newDevice(c *Controller, sw *topology.Switch, election p4rt.ElectionID) (*device, error) {
	d := &device{c: c, sw: sw, first: election, sender: make(chan []byte, 1024), leases: make(chan []byte, 64),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), parts: map[uint8]chain.Config{}}
	d.Switch = ops.NewSwitch(sw.Name, goroutines{c.now}, target{d})
	var err error
	d.client, err = p4rt.New(p4rt.Options{
		Name: sw.Name, Target: sw.P4Runtime, DeviceID: sw.DeviceID, ElectionID: election,
		Info: c.prog.pipeline.Info, Log: c.log,
		TLS:        c.tlsFor(sw),
		RPCTimeout: c.rpcTimeout,
		MaxBackoff: 500 * time.Millisecond, // a switch that is started again is wanted back
	}, p4rt.Handler{
		StateChanged: func(s p4rt.State) { c.post(func() { c.connection(d, s) }) },
		PacketIn:     func(p p4rt.PacketIn) { c.packetIn(d, p.Payload) },
		StreamError:  func(err error) { c.post(func() { c.events.add("switch.stream-error", sw.Name, "", err.Error()) }) },
	})
	return d, err
}

// nextElection is the lower half of an election id that is above all that this connection has had,
// or may be about to have.
func (d *device) nextElection() uint64 { return d.first.Low + uint64(d.client.State().Stream) + 1 }

// stop ends run. What the worker still has to do fails, as it does where a switch is out of reach.
func (d *device) stop() { close(d.quit) }

// run connects and works until ctx ends, or the device is stopped.
func (d *device) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.client.Run(ctx) })
	wg.Go(func() { d.sendQueued(ctx) })
	for {
		d.mu.Lock()
		var job func(context.Context)
		if len(d.jobs) > 0 {
			job, d.jobs = d.jobs[0], d.jobs[1:]
		} else if ctx.Err() != nil {
			d.ended = true
		}
		ended := d.ended
		d.mu.Unlock()
		if ended {
			return
		}
		if job != nil {
			job(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		}
	}
}

// submit gives the worker something to do after all that it was given before.
func (d *device) submit(job func(context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended { // somebody may wait for its end
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go func() {
			d.late.Lock()
			defer d.late.Unlock()
			job(ctx)
		}()
		return
	}
	d.jobs = append(d.jobs, job)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// send sends a frame into the switch's pipeline. It does not wait: packets may be lost here as
// anywhere.
func (d *device) send(frame []byte) error { return d.queue(d.sender, frame) }

// sendLease is send for a LEASE.
func (d *device) sendLease(frame []byte) error { return d.queue(d.leases, frame) }

func (d *device) queue(q chan []byte, frame []byte) error {
	if s := d.client.State(); s.Phase != p4rt.Primary {
		return fmt.Errorf("%s is not connected: %w", d.sw.Name, errors.Join(s.Err, errNotConnected))
	}
	select {
	case q <- frame:
		return nil
	default:
		return fmt.Errorf("%s: too many packets wait to be sent to it", d.sw.Name)
	}
}

var errNotConnected = errors.New("the controller has no stream to it, or is not its primary")

// sendQueued sends what is queued; a stream that is stuck holds up nobody else.
func (d *device) sendQueued(ctx context.Context) {
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
		if err := d.client.PacketOut(f, map[string]uint64{"submit_to_ingress": 1}); err != nil {
			d.c.log.Debug("packet not sent", "switch", d.sw.Name, "error", err)
		}
	}
}

// setUp makes a switch that has just been connected ready for chains: its program, and what follows
// from the topology alone. It runs on the worker, and tries again until the switch has it all or
// the connection is another.
func (d *device) setUp(ctx context.Context, stream int) {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		s := d.client.State()
		if ctx.Err() != nil || s.Phase != p4rt.Primary || s.Stream != stream {
			return
		}
		fresh, reports, err := d.trySetUp(ctx, stream)
		if err == nil {
			d.c.post(func() { d.c.switchUp(d, stream, fresh, reports) })
			return
		}
		if err.Error() != said {
			said = err.Error()
			d.c.post(func() {
				d.lastError = said
				d.c.events.add("switch.not-set-up", d.sw.Name, "", said+"; trying again")
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (d *device) trySetUp(ctx context.Context, stream int) (fresh bool, reports map[uint8]chainReport, err error) {
	pushed, err := d.ensureProgram(ctx, stream)
	if err != nil {
		return false, nil, err
	}
	if pushed != p4rt.Kept {
		d.freshAt, d.loadedAt = stream, 0
		d.c.post(func() {
			d.c.events.add("switch.program-loaded", d.sw.Name, "", "the program was loaded ("+pushed.String()+"): its registers are empty")
		})
	}
	if err := d.load(ctx, stream); err != nil {
		return false, nil, err
	}
	if err := d.writeBase(ctx); err != nil {
		return false, nil, err
	}
	d.setUpAt = stream
	reports, err = d.report()
	return d.freshAt == stream, reports, err
}

// load reads what is in the switch's tables.
func (d *device) load(ctx context.Context, stream int) error {
	if d.loadedAt == stream {
		return nil
	}
	entries := map[string]map[string]*v1.TableEntry{}
	for _, table := range d.tables() {
		list, err := d.client.ReadTable(ctx, table)
		if err != nil {
			return err
		}
		d.worked.Store(int64(d.c.now()))
		entries[table] = map[string]*v1.TableEntry{}
		for _, e := range list {
			entries[table][p4rt.MatchKey(e)] = e
		}
	}
	list, err := d.client.ReadGroups(ctx)
	if err != nil {
		return err
	}
	groups := map[uint32]p4rt.Group{}
	for _, g := range list {
		groups[g.ID] = g
	}
	rates := map[int]int64{}
	if !d.unguarded() {
		if rates, err = d.client.ReadMeter(ctx, "host_rate"); err != nil {
			return err
		}
		if err := d.readOpenness(ctx); err != nil {
			return err
		}
	}
	if !d.lacks("chain_peer") {
		if err := d.readPeersOpen(ctx); err != nil {
			return err
		}
	}
	placed := map[uint8]map[wire.Key]ops.Entry{}
	for _, te := range entries["key_index"] {
		k, err := d.readSlot(te)
		if err != nil {
			return err
		}
		if placed[k.ID.Chain()] == nil {
			placed[k.ID.Chain()] = map[wire.Key]ops.Entry{}
		}
		placed[k.ID.Chain()][k.ID] = k
	}
	d.placedMu.Lock()
	d.placed = placed
	d.placedMu.Unlock()
	d.entries, d.groups, d.rates, d.loadedAt = entries, groups, rates, stream
	d.swept = nil
	d.peered = map[uint8]bool{}
	clear(d.parts) // it may have been restarted: nothing of before may be installed again but by the machine's word
	return nil
}

// errChanged: a switch has, or has not, what it was read to have otherwise in this connection.
var errChanged = fmt.Errorf("somebody else changes it, or it was emptied, and it is read again: %w", errNotConnected)

// chainTables are the tables of which a chain's promise hangs. What is in them only this controller
// changes.
var chainTables = []string{"chain_config", "key_index"}

// write sends updates in the connection in which the switch's tables were read. Between two
// connections the switch may have become another.
func (d *device) write(ctx context.Context, updates ...*v1.Update) error {
	if d.loadedAt == 0 {
		return fmt.Errorf("%s has not been read in this connection: %w", d.sw.Name, errNotConnected)
	}
	return d.client.WriteIn(ctx, d.loadedAt, updates...)
}

// apply writes updates and remembers what is in the switch then. Where the switch turns out to
// have, or not to have, what it was thought to, the update is made the other way: it is the result
// that counts. Not so in chainTables: a switch that has lost an entry there has lost more, and must
// get no role from what was known of it. Its connection is ended, and the chains judge what is read
// in the next one (chain.Machine.compare).
func (d *device) apply(ctx context.Context, updates ...*v1.Update) error {
	if len(updates) == 0 {
		return nil
	}
	err := d.write(ctx, updates...)
	var we *p4rt.WriteError
	refused := errors.As(err, &we)
	if err == nil || refused {
		d.worked.Store(int64(d.c.now()))
	}
	if refused {
		var again []*v1.Update
		var final []p4rt.UpdateError
		for _, u := range we.Updates {
			other := u.Code == codes.AlreadyExists && u.Update.Type == v1.Update_INSERT ||
				u.Code == codes.NotFound && u.Update.Type != v1.Update_INSERT
			if other && slices.Contains(chainTables, d.tableOf(u.Update)) {
				return d.loseTrack(fmt.Errorf("%w: %w", errChanged, we))
			}
			switch {
			case u.Code == codes.AlreadyExists && u.Update.Type == v1.Update_INSERT:
				again = append(again, p4rt.Modify(u.Update.Entity))
			case u.Code == codes.NotFound && u.Update.Type == v1.Update_MODIFY:
				again = append(again, p4rt.Insert(u.Update.Entity))
			case u.Code == codes.NotFound && u.Update.Type == v1.Update_DELETE:
			default:
				final = append(final, u)
			}
		}
		if len(final) > 0 {
			failed := map[int]bool{}
			for _, u := range we.Updates {
				failed[u.Index] = u.Update.Type != v1.Update_DELETE || u.Code != codes.NotFound
			}
			for i, u := range updates {
				if !failed[i] {
					d.remember(u)
				}
			}
			we.Updates = final
			return we
		}
		err = nil
		if len(again) > 0 {
			err = d.write(ctx, again...)
		}
	}
	if err != nil {
		return d.loseTrack(err) // nobody knows how far it came
	}
	for _, u := range updates {
		d.remember(u)
	}
	return nil
}

// loseTrack: what the switch has is not known any more, for the reason that it returns. It is read
// again. Where chains have judged it already that is in another connection, so that they judge what
// is found then, too.
func (d *device) loseTrack(err error) error {
	if d.setUpAt == d.loadedAt {
		d.client.Reconnect(d.loadedAt, err)
	}
	d.loadedAt = 0
	return err
}

// tableOf is the table that an update is of, "" where it is of none.
func (d *device) tableOf(u *v1.Update) string {
	te := u.GetEntity().GetTableEntry()
	if te == nil {
		return ""
	}
	e, err := d.c.prog.pipeline.Info.Decode(&v1.TableEntry{TableId: te.TableId})
	if err != nil {
		return "" // not one of ours: it was made from this very P4Info
	}
	return e.Table
}

func (d *device) remember(u *v1.Update) {
	if te := u.Entity.GetTableEntry(); te != nil {
		table := d.tableOf(u)
		if table == "" {
			return
		}
		if u.Type == v1.Update_DELETE {
			delete(d.entries[table], p4rt.MatchKey(te))
		} else {
			d.entries[table][p4rt.MatchKey(te)] = te
		}
		if table == "key_index" {
			d.rememberSlot(te, u.Type == v1.Update_DELETE)
		}
		return
	}
	if me := u.Entity.GetMeterEntry(); me != nil {
		d.rates[int(me.Index.Index)] = me.GetConfig().GetPir()
	}
	if g, ok := p4rt.DecodeGroup(u.Entity); ok {
		if u.Type == v1.Update_DELETE {
			delete(d.groups, g.ID)
		} else {
			d.groups[g.ID] = g
		}
	}
}

// rememberSlot notes a key_index entry that was made, changed or deleted.
func (d *device) rememberSlot(te *v1.TableEntry, deleted bool) {
	k, err := d.readSlot(te)
	if err != nil {
		return // not one of ours, as in remember
	}
	d.placedMu.Lock()
	defer d.placedMu.Unlock()
	if deleted {
		delete(d.placed[k.ID.Chain()], k.ID)
		return
	}
	if d.placed[k.ID.Chain()] == nil {
		d.placed[k.ID.Chain()] = map[wire.Key]ops.Entry{}
	}
	d.placed[k.ID.Chain()][k.ID] = k
}

// readSlot is what a key_index entry says; of one that is to be deleted, its KEY_ID.
func (d *device) readSlot(te *v1.TableEntry) (ops.Entry, error) {
	e, err := d.c.prog.pipeline.Info.Decode(te)
	if err != nil {
		return ops.Entry{}, err
	}
	k := ops.Entry{ID: wire.Key(e.Exact("KEY_ID").Uint64())}
	if te.Action != nil {
		k.Slot, k.Realm = int(e.Param("slot").Uint64()), uint16(e.Param("realm").Uint64())
		k.Hidden = k.Realm == hiddenKey
	}
	return k, nil
}

// slotsOf is the key_index entries of a chain that are in the switch now, as far as it has
// acknowledged them. Any goroutine may ask.
func (d *device) slotsOf(chain uint8) map[wire.Key]ops.Entry {
	d.placedMu.Lock()
	defer d.placedMu.Unlock()
	return maps.Clone(d.placed[chain])
}

// passing says whether a failure may go away by itself: the switch was out of reach, rather than
// refused.
func passing(err error) bool {
	for _, e := range []error{errNotConnected, ops.ErrNotDeleted, p4rt.ErrNotPrimary, p4rt.ErrNotConnected,
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
