package controller

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/observe"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// device is run's view of a switch.
type device struct {
	*switches.Device
	state     p4rt.State
	ready     bool // the switch was set up since it was last connected
	emptying  bool // the switch is being emptied, so the chains' knowledge of its content is outdated
	lastError string
}

// newDevice returns the device of a switch, not connected yet.
func (c *Controller) newDevice(sw *topology.Switch, election p4rt.ElectionID) (*device, error) {
	d, err := switches.New(switches.Options{Owner: owner{c}, Program: c.prog, Requests: c.requests, Election: election,
		TLS: c.tls, RPCTimeout: c.rpcTimeout, Log: c.log}, sw)
	return &device{Device: d}, err
}

// owner is the controller's interface for devices (switches.Owner).
type owner struct{ c *Controller }

// Post implements switches.Owner.
func (o owner) Post(do func()) { o.c.post(do) }

// Now implements switches.Owner.
func (o owner) Now() chain.Time { return o.c.now() }

// Plan implements switches.Owner.
func (o owner) Plan() *tableplan.Plan { return o.c.net().plan }

// Watches implements switches.Owner.
func (o owner) Watches() tableplan.Watches { return *o.c.watching.Load() }

// Leases implements switches.Owner.
func (o owner) Leases(sw *topology.Switch) []p4rt.Entry {
	return slices.Clone((*o.c.leased.Load())[sw.Name])
}

// AccessIsOpen implements switches.Owner.
func (o owner) AccessIsOpen() bool { return o.c.openness() }

// Answers implements switches.Owner.
func (o owner) Answers(chain uint8, sw string) bool {
	ch := o.c.net().byID[chain]
	return ch != nil && ch.answers(sw)
}

// Event implements switches.Owner.
func (o owner) Event(kind string, d *switches.Device, message string) {
	o.c.events.Add(kind, d.Spec.Name, "", message)
}

// current returns the controller's state for a device. It returns nil if the switch has another
// device now, or none.
func (o owner) current(d *switches.Device) *device {
	if known := o.c.net().byName[d.Spec.Name]; known != nil && known.Device == d {
		return known
	}
	return nil
}

// Connection implements switches.Owner.
func (o owner) Connection(d *switches.Device, s p4rt.State) {
	if known := o.current(d); known != nil {
		o.c.connection(known, s)
	}
}

// NotSetUp implements switches.Owner.
func (o owner) NotSetUp(d *switches.Device, why string) {
	if known := o.current(d); known != nil {
		known.lastError = observe.Printable(why)
	}
	o.Event("switch.not-set-up", d, why+"; trying again")
}

// SetUp implements switches.Owner.
func (o owner) SetUp(d *switches.Device, stream int, fresh bool, has map[uint8]switches.Report) {
	if known := o.current(d); known != nil {
		o.c.switchUp(known, stream, fresh, has)
	}
}

// LeaseReply implements switches.Owner.
func (o owner) LeaseReply(d *switches.Device, at chain.Time, p *wire.Packet) {
	if uint32(p.Key)&(1<<24-1) != o.c.leaseTag {
		return // the LEASE came from another controller
	}
	known, ch := o.current(d), o.c.net().byID[p.Key.Chain()]
	if known == nil || known.emptying || ch == nil {
		return
	}
	o.c.touch(ch).LeaseReply(at, d.Spec.Name, chain.LeaseAnswer{Number: p.Session, Clock: uint64(p.Version),
		Left: time.Duration(p.Request) * time.Microsecond, Epoch: p.Epoch, Granted: p.Status == wire.OK})
}
