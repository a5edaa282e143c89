package target

import (
	"errors"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// The kinds of failure that a driver can distinguish. Errors of engines wrap one of them
// (errors.Is), and name the operation and the entity.
var (
	ErrNotFound = errors.New("not found")      // no such table, entry, register index, group
	ErrExists   = errors.New("already exists") // an entry with this match exists
	// the declared size is reached
	ErrFull = errors.New("table is full")
	// wrong width, unknown action for the table, missing field
	ErrInvalid   = errors.New("invalid argument")
	ErrImmutable = errors.New("immutable") // const entries, const default action
	// this engine cannot run the construct; the message names it
	ErrUnsupported = errors.New("not supported")
	ErrNoPipeline  = errors.New("no pipeline is set") // nothing has been committed yet
	// register, counter or meter index beyond the array
	ErrOutOfRange = errors.New("index out of range")
	// no program has been loaded that is not running yet
	ErrNothingLoaded = errors.New("no program has been loaded that could be swapped in")
)

// FieldMatch is the match on one key of a table, in the table's key order. The key's kind
// determines the fields that matter: exact: Value; lpm: Value and PrefixLen (bits); ternary and
// optional: Value and Mask (same width; an all-zero mask is "don't care"); range: Value is the low
// bound and Mask the high bound, both inclusive; valid: Value is one byte, 0 or 1.
type FieldMatch struct {
	Value     []byte
	Mask      []byte
	PrefixLen int
}

// ActionCall is an action with its parameters, in the action's declared order, each in its declared
// width.
type ActionCall struct {
	Action string
	Params [][]byte
}

// TableEntry is one entry. Exactly one of Action, Member and Group is set: a direct table has
// actions, an indirect one (action profile or selector) has members or groups.
type TableEntry struct {
	Match []FieldMatch
	// for tables with ternary, range or optional keys only: the largest priority wins, as in
	// P4Runtime (in BMv2 the smallest wins)
	Priority int
	Action   *ActionCall
	Member   *uint32
	Group    *uint32
	IsConst  bool // read only: the entry is part of the program
}

// CounterData is the value of one counter cell.
type CounterData struct {
	Packets uint64
	Bytes   uint64
}

// MeterRate is one rate of a two-rate three-colour meter: tokens per second (bytes or packets, by
// the meter's declaration), and the burst in tokens.
type MeterRate struct {
	PerSecond uint64
	Burst     uint64
}

// MeterConfig is the configuration of one meter cell (RFC 2698: CIR/CBS, PIR/PBS). A nil config
// means every packet is green.
type MeterConfig struct {
	Committed MeterRate
	Peak      MeterRate
}

// Replica is one copy that a multicast group or clone session makes.
type Replica struct {
	Port     uint32
	Instance uint16 // becomes egress_rid of the copy
}

// CloneSession is the configuration of a mirror session: the copies, and the number of bytes to
// which each is truncated (0: not truncated).
type CloneSession struct {
	Replicas     []Replica
	TruncateTo   int
	ClassOfQueue uint32
}

// Pipeline is one committed program and its state. All methods are safe for concurrent use, also
// with packets in flight; a packet sees each entity either before or after a write, never a
// mixture.
type Pipeline interface {
	Program() *bmv2json.Program

	InsertEntry(table string, e *TableEntry) error
	ModifyEntry(table string, e *TableEntry) error
	DeleteEntry(table string, e *TableEntry) error // the action is ignored
	// in no particular order; const entries included and marked
	Entries(table string) ([]TableEntry, error)
	// e.Match is empty; nil restores the program's own default
	SetDefault(table string, e *TableEntry) error
	Default(table string) (*TableEntry, error) // nil if there is none

	// DirectCounter reads, and SetDirectCounter sets, the counter of the entry with e's match. As
	// in BMv2, the default entry has no counter.
	DirectCounter(table string, e *TableEntry) (CounterData, error)
	SetDirectCounter(table string, e *TableEntry, d CounterData) error
	DirectMeter(table string, e *TableEntry) (*MeterConfig, error)
	SetDirectMeter(table string, e *TableEntry, c *MeterConfig) error

	// Members and groups of an action profile ("act_prof" in the JSON). A member's weight is its
	// number of buckets in the group. If insert is set, SetMember and SetGroup add a member or
	// group (ErrExists if it exists); otherwise they change an existing one (ErrNotFound if it does
	// not exist). A group without members is a hit that runs no action. A member or group cannot be
	// deleted while an entry, a default entry or a group refers to it (ErrInvalid).
	SetMember(profile string, id uint32, a *ActionCall, insert bool) error
	DeleteMember(profile string, id uint32) error
	Members(profile string) (map[uint32]ActionCall, error)
	SetGroup(profile string, id uint32, members []WeightedMember, insert bool) error
	DeleteGroup(profile string, id uint32) error
	Groups(profile string) (map[uint32][]WeightedMember, error)

	ReadCounter(name string, index int) (CounterData, error)
	WriteCounter(name string, index int, d CounterData) error
	ReadMeter(name string, index int) (*MeterConfig, error)
	WriteMeter(name string, index int, c *MeterConfig) error
	ReadRegister(name string, index int) ([]byte, error)
	// ReadRegisters reads count cells from first on. Each cell is read atomically, but not the
	// whole range.
	ReadRegisters(name string, first, count int) ([][]byte, error)
	// AppendRegisters appends the cells to a slice, (width+7)/8 bytes each.
	AppendRegisters(to []byte, name string, first, count int) ([]byte, error)
	WriteRegister(name string, index int, value []byte) error
	// FillRegister sets every cell to value.
	FillRegister(name string, value []byte) error

	// SetValueSet replaces the members of a parser value set: each field of a member has a Value
	// and, if only some of its bits matter, a Mask.
	SetValueSet(name string, members [][]FieldMatch) error
	ValueSet(name string) ([][]FieldMatch, error)

	// SetMulticastGroup sets the replicas of a group, which may be an empty list; nil removes the
	// group. Ids are 1 to 65535 (ErrOutOfRange).
	SetMulticastGroup(id uint32, replicas []Replica) error
	MulticastGroups() map[uint32][]Replica
	// SetCloneSession sets a session; nil removes it. Ids are 0 to 32767, as in BMv2
	// (ErrOutOfRange).
	SetCloneSession(id uint32, s *CloneSession) error
	CloneSessions() map[uint32]CloneSession

	// Barrier makes the changes so far final: after it returns, no packet that has read the earlier
	// state of a table, group, session or value set accesses a register any more. Call it once
	// before acknowledging changes. Before that, such packets may still be in flight. Their earlier
	// operations on registers stay, and they leave by their assigned port.
	Barrier() error
}

// WeightedMember is one member of an action selector's group.
type WeightedMember struct {
	Member uint32
	Weight int
}

// Port is a network interface that the switch drives under a data-plane port number.
type Port struct {
	Number uint32
	Iface  string
}

// PortCounters are a port's own counts, kept outside the program.
type PortCounters struct {
	RxPackets, RxBytes, TxPackets, TxBytes, TxDropped uint64
}

// Digest is one batch of learn_list data that the program sent with digest().
type Digest struct {
	Name   string
	Fields [][]byte // in the learn list's order
}

// Device is a switch: ports, and at most one committed pipeline.
type Device interface {
	// Engine names the engine that runs the committed program and why it was chosen, for people
	// ("interp: chosen with --engine").
	Engine() string
	// Verify returns why prog cannot run here, wrapping ErrUnsupported with the construct and its
	// place in the JSON; nil if it can.
	Verify(prog *bmv2json.Program) error
	// Commit replaces the running program. State starts empty, except for const entries and
	// defaults. No packet sees parts of both programs.
	Commit(prog *bmv2json.Program) error
	// Pipeline returns the committed pipeline, or nil.
	Pipeline() Pipeline

	AddPort(p Port) error
	RemovePort(number uint32) error
	Ports() map[Port]PortCounters

	// PacketOut injects a frame (packet-out header included, as the program's parser expects it) as
	// if it were received on the CPU port.
	PacketOut(frame []byte) error
	// OnPacketIn sets the function that gets the frames for the CPU port (packet-in header
	// included). The function owns the frame.
	OnPacketIn(func(frame []byte))
	// OnDigest sets the function that gets the digests.
	OnDigest(func(Digest))
	// Now is the time since the device was made, by the clock of the program's timestamps. The
	// clock continues while the machine is suspended, because read leases depend on it.
	Now() time.Duration
	Close() error
}

// Preparer is a Device that can build a pipeline while another one runs. P4Runtime's
// VERIFY_AND_SAVE and RECONCILE_AND_COMMIT need it.
type Preparer interface {
	// Prepare makes a pipeline for prog that packets do not pass yet. It can be read and written.
	Prepare(prog *bmv2json.Program) (Pipeline, error)
	// Activate commits a pipeline from Prepare. No packet is processed between the call of handOver
	// (if not nil), which can copy state that packets change, and the first packet in the new
	// pipeline. If handOver fails, nothing changes.
	Activate(p Pipeline, handOver func() error) error
}

// QueueSetter is a [Device] with queues between ingress and egress: one for each port and priority;
// the larger priority is served first. A nil port or priority means all.
type QueueSetter interface {
	// SetQueueDepth sets the highest number of waiting packets; a full queue drops new packets.
	SetQueueDepth(port *uint32, priority *int, packets int) error
	// SetQueueRate sets the highest number of packets per second that leave; 0: no limit.
	SetQueueRate(port *uint32, priority *int, perSecond uint64) error
}

// CRC are the parameters of a CRC of 16 or 32 bits, by their names in the catalogue of CRCs.
type CRC struct {
	Polynomial, Init, XorOut uint32
	ReflectIn, ReflectOut    bool
}

// CRCSetter is a [Pipeline] that can change the parameters of the program's custom CRCs.
type CRCSetter interface {
	// SetCRC sets the parameters of the named calculation (ErrNotFound), whose algorithm must be
	// crc16_custom or crc32_custom (ErrInvalid).
	SetCRC(calculation string, c CRC) error
}

// SplitCells splits the result of AppendRegisters on nil into its count cells.
func SplitCells(cells []byte, count int) [][]byte {
	out := make([][]byte, count)
	for i := range out {
		n := len(cells) / count
		out[i] = cells[i*n : (i+1)*n : (i+1)*n]
	}
	return out
}
