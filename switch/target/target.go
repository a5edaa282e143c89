package target

import (
	"errors"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// The kinds of failure that a driver can distinguish. Errors of engines wrap one of these errors
// (errors.Is), and name the operation and the entity.
var (
	// there is no such table, entry, group or other object
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("already exists") // an entry with this match already exists
	// the table has reached its declared size
	ErrFull = errors.New("table is full")
	// the value has a wrong width, the table lacks the action, or a field is missing
	ErrInvalid   = errors.New("invalid argument")
	ErrImmutable = errors.New("immutable") // the entry or default action is const
	// The engine cannot run a construct, which the message names.
	ErrUnsupported = errors.New("not supported")
	ErrNoPipeline  = errors.New("no pipeline is set") // nothing has been committed yet
	// the index is beyond the register, counter or meter array
	ErrOutOfRange = errors.New("index out of range")
	// There is no program that is loaded but not running.
	ErrNothingLoaded = errors.New("no program has been loaded that could be swapped in")
)

// FieldMatch is the match on one key of a table. Matches are in the order of the table's keys. The
// key's match kind determines the fields that matter. For exact, it is Value. For lpm, these are
// Value and PrefixLen (bits). For ternary and optional, these are Value and Mask, which have the
// same width. An all-zero mask is "don't care". For range, Value is the low bound and Mask the high
// bound, both inclusive. For valid, Value is one byte, 0 or 1.
type FieldMatch struct {
	Value     []byte
	Mask      []byte
	PrefixLen int
}

// ActionCall is an action with its parameters. They are in the action's declared order, and each
// has its declared width.
type ActionCall struct {
	Action string
	Params [][]byte
}

// TableEntry is one entry. Exactly one of Action, Member and Group is set. The entries of a direct
// table have actions. The entries of an indirect table (action profile or selector) have members or
// groups.
type TableEntry struct {
	Match []FieldMatch
	// Priority is only for tables with ternary, range or optional keys. The largest priority wins,
	// as in P4Runtime. In BMv2 the smallest wins.
	Priority int
	Action   *ActionCall
	Member   *uint32
	Group    *uint32
	IsConst  bool // read-only; set if the entry is part of the program
}

// CounterData is the content of one counter cell.
type CounterData struct {
	Packets uint64
	Bytes   uint64
}

// MeterRate is one rate of a two-rate three-colour meter. It has tokens per second, and a burst in
// tokens. A token is a byte or a packet, as the meter is declared.
type MeterRate struct {
	PerSecond uint64
	Burst     uint64
}

// MeterConfig is the configuration of one meter cell (RFC 2698: CIR/CBS, PIR/PBS). With a nil
// config, every packet is green.
type MeterConfig struct {
	Committed MeterRate
	Peak      MeterRate
}

// Replica is one copy that a multicast group or clone session makes.
type Replica struct {
	Port     uint32
	Instance uint16 // egress_rid of the copy
}

// CloneSession is the configuration of a clone session: the copies, and the number of bytes to
// which each copy is truncated. 0 means that copies are not truncated.
type CloneSession struct {
	Replicas     []Replica
	TruncateTo   int
	ClassOfQueue uint32
}

// Pipeline is one committed program and its state. All methods are safe for concurrent use, also
// while packets are in flight. A packet sees each entity either before or after a write, never a
// mixture.
type Pipeline interface {
	Program() *bmv2json.Program

	InsertEntry(table string, e *TableEntry) error
	ModifyEntry(table string, e *TableEntry) error
	DeleteEntry(table string, e *TableEntry) error // ignores the action in e
	// Entries returns the entries in no particular order. Const entries are included and marked.
	Entries(table string) ([]TableEntry, error)
	// SetDefault sets the default entry. e.Match must be empty. A nil e restores the program's own
	// default entry.
	SetDefault(table string, e *TableEntry) error
	Default(table string) (*TableEntry, error) // nil if there is no default entry

	// DirectCounter reads the counter of the entry with the same match as e, and SetDirectCounter
	// sets it. As in BMv2, the default entry has no counter.
	DirectCounter(table string, e *TableEntry) (CounterData, error)
	SetDirectCounter(table string, e *TableEntry, d CounterData) error
	DirectMeter(table string, e *TableEntry) (*MeterConfig, error)
	SetDirectMeter(table string, e *TableEntry, c *MeterConfig) error

	// Members and groups of an action profile ("act_prof" in the JSON). A member's weight is its
	// number of buckets in the group. If insert is set, SetMember and SetGroup add a member or
	// group, or return ErrExists. Otherwise they change an existing member or group, or return
	// ErrNotFound. A group without members is a hit that runs no action. While an entry, a default
	// entry or a group refers to a member or group, deleting it returns ErrInvalid.
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
	// ReadRegisters reads count cells from cell first on. It reads each cell atomically, but not
	// the whole range.
	ReadRegisters(name string, first, count int) ([][]byte, error)
	// AppendRegisters reads cells as ReadRegisters does, and appends them to a slice. Each cell has
	// (width+7)/8 bytes.
	AppendRegisters(to []byte, name string, first, count int) ([]byte, error)
	WriteRegister(name string, index int, value []byte) error
	// FillRegister sets every cell to value.
	FillRegister(name string, value []byte) error

	// SetValueSet replaces the members of a parser value set. Each field of a member has a Value
	// and, if only some of its bits matter, a Mask.
	SetValueSet(name string, members [][]FieldMatch) error
	ValueSet(name string) ([][]FieldMatch, error)

	// SetMulticastGroup sets the replicas of a group. The list may be empty. A nil list removes the
	// group. Ids are 1 to 65535 (ErrOutOfRange).
	SetMulticastGroup(id uint32, replicas []Replica) error
	MulticastGroups() map[uint32][]Replica
	// SetCloneSession sets a clone session. A nil s removes the session. Ids are 0 to 32767, as in
	// BMv2 (ErrOutOfRange).
	SetCloneSession(id uint32, s *CloneSession) error
	CloneSessions() map[uint32]CloneSession

	// Barrier makes all earlier changes final. After it returns, a packet that has read the earlier
	// state of a table, group, session or value set does not access any register. Callers must call
	// it once before they acknowledge changes. Before that, such packets may still be in flight.
	// Their earlier operations on registers stay, and they leave through the port that they already
	// selected.
	Barrier() error
}

// WeightedMember is one member of an action selector's group.
type WeightedMember struct {
	Member uint32
	Weight int
}

// Port is a network interface of the switch, together with its data-plane port number.
type Port struct {
	Number uint32
	Iface  string
}

// PortCounters are the counters of a port, which are independent of the program.
type PortCounters struct {
	RxPackets, RxBytes, TxPackets, TxBytes, TxDropped uint64
}

// Digest is one batch of learn_list data that the program sent with digest().
type Digest struct {
	Name   string
	Fields [][]byte // the values in the learn list's order
}

// Device is a switch: its ports, and at most one committed pipeline.
type Device interface {
	// Engine returns the name of the engine that runs the committed program and why it was chosen,
	// for people. For example, it returns "interp: chosen with --engine".
	Engine() string
	// Verify checks whether prog can run here. If not, the error wraps ErrUnsupported and names the
	// construct and its place in the JSON.
	Verify(prog *bmv2json.Program) error
	// Commit replaces the running program. The new program starts with empty state, except for
	// const entries and defaults. No packet sees parts of both programs.
	Commit(prog *bmv2json.Program) error
	// Pipeline returns the committed pipeline, or nil.
	Pipeline() Pipeline

	AddPort(p Port) error
	RemovePort(number uint32) error
	Ports() map[Port]PortCounters

	// PacketOut injects a frame as if it were received on the CPU port. The frame includes the
	// packet-out header, as the program's parser expects it.
	PacketOut(frame []byte) error
	// OnPacketIn sets the function that receives the frames for the CPU port, including their
	// packet-in header. The function owns the frame.
	OnPacketIn(func(frame []byte))
	// OnDigest sets the function that receives the program's digests.
	OnDigest(func(Digest))
	// Now returns the time since the device was created, on the clock of the program's timestamps.
	// The clock continues while the machine is suspended, because read leases depend on it.
	Now() time.Duration
	Close() error
}

// Preparer is a Device that can build a pipeline while another pipeline is running. P4Runtime's
// VERIFY_AND_SAVE and RECONCILE_AND_COMMIT need it.
type Preparer interface {
	// Prepare creates a pipeline for prog. It can be read and written, but packets do not pass it
	// yet.
	Prepare(prog *bmv2json.Program) (Pipeline, error)
	// Activate commits a pipeline that Prepare created. If handOver is not nil, Activate calls it,
	// and it can copy state that packets change. The device processes no packet from the call of
	// handOver until the first packet in the new pipeline. If handOver fails, nothing changes.
	Activate(p Pipeline, handOver func() error) error
}

// QueueSetter is a [Device] with queues between ingress and egress, one for each port and priority.
// The queue with the larger priority is served first. A nil port or priority means all.
type QueueSetter interface {
	// SetQueueDepth sets the largest number of waiting packets. A full queue drops new packets.
	SetQueueDepth(port *uint32, priority *int, packets int) error
	// SetQueueRate sets the largest number of packets per second that leave a queue. 0 means no
	// limit.
	SetQueueRate(port *uint32, priority *int, perSecond uint64) error
}

// CRC has the parameters of a 16-bit or 32-bit CRC, with the names that the catalogue of CRCs uses.
type CRC struct {
	Polynomial, Init, XorOut uint32
	ReflectIn, ReflectOut    bool
}

// CRCSetter is a [Pipeline] that can change the parameters of the program's custom CRCs.
type CRCSetter interface {
	// SetCRC sets the parameters of the named calculation. If there is none, it returns
	// ErrNotFound. If the algorithm is neither crc16_custom nor crc32_custom, it returns
	// ErrInvalid.
	SetCRC(calculation string, c CRC) error
}

// SplitCells splits the result of AppendRegisters, called with a nil slice, into its count cells.
func SplitCells(cells []byte, count int) [][]byte {
	out := make([][]byte, count)
	for i := range out {
		n := len(cells) / count
		out[i] = cells[i*n : (i+1)*n : (i+1)*n]
	}
	return out
}
