package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// Port is the UDP destination port of requests and the source port of replies: 0x4E43, "NC".
const Port = 20035

// HeaderBytes is the length of the header before the value field.
const HeaderBytes = 24

// lengthTombstone in the length field means that the key has no value, because it was never written
// or was deleted. A WRITE with this length is a DELETE.
const lengthTombstone = 0xFFFF

// Op is the operation of a packet (8 bits). The paper's name for it is KV_OP.
type Op uint8

const (
	Read      Op = 1 // sent by a client
	ReadReply Op = 2 // sent by the switch that answered
	// A client sends a WRITE unstamped. From the head on, it is Stamped with its version. A
	// Tombstone makes it a DELETE.
	Write      Op = 3
	WriteReply Op = 4 // sent by the tail
	Ack        Op = 5 // multicast by the tail to the other members; carries the committed version and value
	// CAS is a WRITE that executes only if the key's version equals the packet's version. A Stamped
	// CAS is a failed CAS on its way to the tail.
	CAS        Op = 6
	CASReply   Op = 7  // sent by the tail
	Sync       Op = 8  // sent by the controller to fill a switch: writes a slot if the packet's version is newer
	Lease      Op = 9  // sent by the controller: renews a switch's permission to answer reads
	LeaseReply Op = 10 // sent to the controller
	Fetch      Op = 11 // sent by the controller: reads one slot or session of one switch, in any state
	FetchReply Op = 12 // sent to the controller
	SyncReply  Op = 13 // sent to the controller
	Notify     Op = 14 // sent by a switch to a server that watches the key: has the committed version and value
)

var opNames = [...]string{
	Read: "READ", ReadReply: "READ_REPLY", Write: "WRITE", WriteReply: "WRITE_REPLY", Ack: "ACK", CAS: "CAS", CASReply: "CAS_REPLY",
	Sync: "SYNC", Lease: "LEASE", LeaseReply: "LEASE_REPLY", Fetch: "FETCH", FetchReply: "FETCH_REPLY", SyncReply: "SYNC_REPLY",
	Notify: "NOTIFY",
}

// Valid reports whether o is one of the protocol's operations.
func (o Op) Valid() bool { return o >= Read && o <= Notify }

// IsReply reports whether o answers a request or is a NOTIFY. The second byte of such a packet is a
// Status, and its UDP source port is Port. An ACK is not a reply.
func (o Op) IsReply() bool {
	switch o {
	case ReadReply, WriteReply, CASReply, LeaseReply, FetchReply, SyncReply, Notify:
		return true
	}
	return false
}

// Reply returns the op of the answer to a request with op o. The result ok is false if nothing
// answers o. That is so for ACK, replies and unknown ops.
func (o Op) Reply() (reply Op, ok bool) {
	switch o {
	case Read:
		return ReadReply, true
	case Write:
		return WriteReply, true
	case CAS:
		return CASReply, true
	case Sync:
		return SyncReply, true
	case Lease:
		return LeaseReply, true
	case Fetch:
		return FetchReply, true
	}
	return 0, false
}

// String returns the name of the op in docs/protocol.md. For an unknown op it returns OP(n).
func (o Op) String() string {
	if o.Valid() {
		return opNames[o]
	}
	return fmt.Sprintf("OP(%d)", uint8(o))
}

// Flags are the second byte (8 bits) of requests and chain packets.
type Flags uint8

const (
	// READ: any member may answer with the last committed value. This is the only flag that a host
	// may set.
	Eventual       Flags = 0x01
	DirtyForwarded Flags = 0x02 // READ: a switch has forwarded this packet to the tail
	ToHead         Flags = 0x04 // WRITE, CAS: a switch has forwarded this packet to the head
	Stamped        Flags = 0x08 // WRITE, CAS: the head has set the packet's version and epoch
	ByCAS          Flags = 0x10 // Stamped WRITE: the client sent a CAS, so the tail answers with CAS_REPLY
	// Stamped WRITE: the controller sent this packet again, so the tail acknowledges it but sends
	// no reply
	NoReply Flags = 0x20
	// FETCH: returns the newest accepted value and its writer instead of the committed value. SYNC
	// of a session: resets the session's record.
	Newest  Flags = 0x40
	Session Flags = 0x80 // FETCH, SYNC: the packet is about a session record instead of a slot
)

var flagNames = [...]string{"EVENTUAL", "DIRTY_FORWARDED", "TO_HEAD", "STAMPED", "BY_CAS", "NO_REPLY", "NEWEST", "SESSION"}

// String returns the names of the set flags, joined by "|". It returns "0" if no flag is set.
func (f Flags) String() string {
	if f == 0 {
		return "0"
	}
	var set []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, "|")
}

// Status is the second byte (8 bits) of replies.
type Status uint8

const (
	OK Status = 0 // success; version and value are the committed ones
	// the key has no slot, was never written (version 0), or was deleted (version of the deletion);
	// the reply is a Tombstone
	NotFound Status = 1
	// the key's version is not the expected version; the reply has the committed version and value
	CASFailed Status = 2
	// not executed, because an earlier write must commit first or the chain is frozen; the client
	// should send the request again
	Retry      Status = 3
	NotServing Status = 4 // this switch may not answer and cannot forward; the client should try another switch
	// Superseded is a success. The write was executed, and a newer write has already replaced its
	// value, so the reply's value is not the committed value.
	Superseded Status = 5
	NoChain    Status = 6 // this switch knows no chain with the number in the key
	// The session is beyond the switch's session table, is not leased to the sending host, or was
	// leased again since the request.
	BadSession Status = 7
	Full       Status = 8  // all dirty cells are in use; only a program compiled with PAPER_WRITE_BOUND sends this
	Dirty      Status = 9  // in FETCH_REPLY: this switch has not committed the newest version of the slot
	Denied     Status = 10 // the sender lacks the right for this operation in the key's realm
)

var statusNames = [...]string{"OK", "NOT_FOUND", "CAS_FAILED", "RETRY", "NOT_SERVING", "SUPERSEDED", "NO_CHAIN", "BAD_SESSION", "FULL", "DIRTY", "DENIED"}

// Valid reports whether s is one of the protocol's statuses. Unmarshal also accepts others, so that
// the receiver of a reply can report the unknown status.
func (s Status) Valid() bool { return int(s) < len(statusNames) }

// String returns the name of the status in docs/protocol.md. For an unknown status it returns
// STATUS(n).
func (s Status) String() string {
	if s.Valid() {
		return statusNames[s]
	}
	return fmt.Sprintf("STATUS(%d)", uint8(s))
}

// Key is a KEY_ID (32 bits). The top 8 bits name the chain (virtual group).
type Key uint32

// MakeKey returns the key with the given chain (8 bits) and number within the chain (24 bits). It
// cuts off higher bits of the number.
func MakeKey(chain uint8, number uint32) Key { return Key(chain)<<24 | Key(number&0xFFFFFF) }

// Chain returns the number of the chain that the key belongs to.
func (k Key) Chain() uint8 { return uint8(k >> 24) }

// String returns the key as 0x and eight hexadecimal digits. The first two digits are the number of
// the chain.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// ParseKey parses a KEY_ID: hexadecimal with 0x, or decimal.
func ParseKey(s string) (Key, error) {
	digits, base := s, 10
	if rest, ok := cutHexPrefix(s); ok {
		digits, base = rest, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a KEY_ID: pass a number below 2^32, decimal or hexadecimal with 0x", s)
	}
	return Key(n), nil
}

// RequestWindow is the maximum difference between the number of a session's request and the last
// request number that a switch has recorded. Request numbers have 32 bits. A number farther away
// belongs to another lease of the session.
const RequestWindow = 1 << 28

// Version orders the writes of one key. The upper 16 bits are the chain's epoch when the head
// assigned the version. The lower 48 bits are a sequence. Versions are compared as unsigned
// numbers. The value 0 means that the key was never written.
type Version uint64

// MaxSequence is the largest sequence of a Version.
const MaxSequence = 1<<48 - 1

// MakeVersion returns the version with an epoch and a sequence. It cuts off bits of the sequence
// above 48.
func MakeVersion(epoch uint16, sequence uint64) Version {
	return Version(epoch)<<48 | Version(sequence&MaxSequence)
}

// Epoch returns the epoch of the chain configuration in which the version was assigned.
func (v Version) Epoch() uint16 { return uint16(v >> 48) }

// Sequence returns the number of writes of the key, across all epochs.
func (v Version) Sequence() uint64 { return uint64(v) & MaxSequence }

// String returns the version as "epoch.sequence", for example 3.17. The text "0" means never
// written.
func (v Version) String() string {
	if v == 0 {
		return "0"
	}
	return strconv.FormatUint(uint64(v.Epoch()), 10) + "." + strconv.FormatUint(v.Sequence(), 10)
}

// ParseVersion parses the format of String. It also parses plain numbers, in decimal or in
// hexadecimal with 0x.
func ParseVersion(s string) (Version, error) {
	bad := fmt.Errorf("%q is not a version: pass EPOCH.SEQUENCE (as 3.17), or the 64-bit number, decimal or hexadecimal with 0x", s)
	if epoch, sequence, ok := strings.Cut(s, "."); ok {
		e, err1 := strconv.ParseUint(epoch, 10, 16)
		q, err2 := strconv.ParseUint(sequence, 10, 48)
		if err1 != nil || err2 != nil {
			return 0, bad
		}
		return MakeVersion(uint16(e), q), nil
	}
	digits, base := s, 10
	if rest, ok := cutHexPrefix(s); ok {
		digits, base = rest, 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		return 0, bad
	}
	return Version(n), nil
}

func cutHexPrefix(s string) (string, bool) {
	if rest, ok := strings.CutPrefix(s, "0x"); ok {
		return rest, true
	}
	return strings.CutPrefix(s, "0X")
}

// Profile is the width of the value field in bits (VALUE_BITS) for which the P4 program was
// compiled.
type Profile int

const (
	Profile128  Profile = 128  // the paper's width
	Profile1024 Profile = 1024 // 128 bytes, as in NetChain and NetCache
	Profile4096 Profile = 4096
	Profile8192 Profile = 8192 // enough for most Kubernetes objects, if they are compressed
)

// Profiles lists all profiles, narrowest first.
var Profiles = []Profile{Profile128, Profile1024, Profile4096, Profile8192}

// Valid reports whether the P4 program can be compiled for the profile.
func (p Profile) Valid() bool {
	return p == Profile128 || p == Profile1024 || p == Profile4096 || p == Profile8192
}

// ValueBytes returns the length of the value field, which is the maximum length of a value.
func (p Profile) ValueBytes() int { return int(p) / 8 }

// PacketBytes returns the length of every packet of the profile, as a UDP payload.
func (p Profile) PacketBytes() int { return HeaderBytes + p.ValueBytes() }

// String returns the width in bits, in the format of configuration files.
func (p Profile) String() string { return strconv.Itoa(int(p)) }

// ParseProfile parses the width of the value field in bits.
func ParseProfile(s string) (Profile, error) {
	n, err := strconv.Atoi(s)
	if err != nil || !Profile(n).Valid() {
		return 0, fmt.Errorf("%q is not a profile: VALUE_BITS is 128, 1024, 4096 or 8192", s)
	}
	return Profile(n), nil
}

// ProfileOfValue returns the profile whose maximum value length is n bytes.
func ProfileOfValue(n int) (Profile, error) {
	if p := Profile(n * 8); p.Valid() {
		return p, nil
	}
	return 0, fmt.Errorf("no profile has values of %d bytes: want 16, 128, 512 or 1024", n)
}
