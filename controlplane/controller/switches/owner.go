package switches

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Owner is the interface between devices and the controller that they work for.
type Owner interface {
	// Post runs a function on the controller's goroutine, in the order of the calls.
	Post(do func())
	// Now returns the time by the clock that measures leases.
	Now() chain.Time

	// Plan returns what the switches should hold now. The plan may be replaced, so workers call
	// Plan each time they need it.
	Plan() *tableplan.Plan
	// Watches returns which server watches which keys now.
	Watches() tableplan.Watches
	// Leases returns the session_lease entries of the sessions that are leased to a switch's
	// hosts.
	Leases(sw *topology.Switch) []p4rt.Entry
	// AccessIsOpen reports whether the table access must grant everything to all hosts.
	AccessIsOpen() bool
	// Answers reports whether a switch may answer for a chain.
	Answers(chain uint8, sw string) bool

	// Event reports what has happened at a switch. The device calls this method and the following
	// ones on the controller's goroutine.
	Event(kind string, d *Device, message string)
	// Connection reports a change of the state of the switch's connection.
	Connection(d *Device, s p4rt.State)
	// NotSetUp reports that the switch could not be made ready. The device tries again.
	NotSetUp(d *Device, why string)
	// SetUp reports that the switch has everything that follows from the topology. fresh says that
	// its registers are empty.
	SetUp(d *Device, stream int, fresh bool, has map[uint8]Report)
	// LeaseReply reports the reply to a LEASE, and when it came.
	LeaseReply(d *Device, at chain.Time, p *wire.Packet)
}
