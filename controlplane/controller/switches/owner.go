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
	// Post runs something on the controller's goroutine. Its order is that of the calls.
	Post(do func())
	// Now is the time by the clock that leases are counted by.
	Now() chain.Time

	// Plan is what the switches should hold now. It is replaced, so workers ask for it each time.
	Plan() *tableplan.Plan
	// Watches is who watches which keys now.
	Watches() tableplan.Watches
	// Leases is the session_lease entries of the sessions that are leased to a switch's hosts.
	Leases(sw *topology.Switch) []p4rt.Entry
	// AccessIsOpen says whether the table access is to grant everything to everybody.
	AccessIsOpen() bool
	// Answers says whether a switch may answer for a chain.
	Answers(chain uint8, sw string) bool

	// Event says what has happened at a switch. It runs on the controller's goroutine, as does what
	// follows.
	Event(kind string, d *Device, message string)
	// Connection: the state of the connection to the switch has changed.
	Connection(d *Device, s p4rt.State)
	// NotSetUp: the switch could not be made ready, and that is tried again.
	NotSetUp(d *Device, why string)
	// SetUp: the switch has all that follows from the topology. fresh: its registers are empty.
	SetUp(d *Device, stream int, fresh bool, has map[uint8]Report)
	// LeaseReply: an answer to a LEASE came, at a time.
	LeaseReply(d *Device, at chain.Time, p *wire.Packet)
}
