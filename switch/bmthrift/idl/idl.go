// Package idl contains the Go types of BMv2's Thrift services. The .thrift files in this directory
// define them.
//
// The tag of a struct field contains the field's number, and "optional" if the IDL says so. An
// optional field that is nil is not sent. Other fields are always sent, and are zero if a client
// omits them.
package idl

import "strconv"

// Handle identifies an entry of a table, or a member or group of an action profile.
type Handle = int32

// ActionData are the parameters of an action.
type ActionData = [][]byte

// MatchKey is the key of an entry, one MatchParam for each field.
type MatchKey = []MatchParam

// MatchType is the match kind of one field of a match key.
type MatchType int32

// The values of MatchType.
const (
	MatchTypeExact MatchType = iota
	MatchTypeLPM
	MatchTypeTernary
	MatchTypeValid
	MatchTypeRange
)

// String implements fmt.Stringer.
func (t MatchType) String() string { return nameOf(t, "EXACT", "LPM", "TERNARY", "VALID", "RANGE") }

// nameOf returns the name of an enum's value. For a value without a name it returns the number.
func nameOf[E ~int32](value E, names ...string) string {
	if value < 0 || int(value) >= len(names) {
		return strconv.Itoa(int(value))
	}
	return names[value]
}

// MatchParam is one field of a match key. Type tells which of the other fields is set.
type MatchParam struct {
	Type    MatchType     `thrift:"1"`
	Exact   *ExactMatch   `thrift:"2,optional"`
	LPM     *LPMMatch     `thrift:"3,optional"`
	Ternary *TernaryMatch `thrift:"4,optional"`
	Valid   *ValidMatch   `thrift:"5,optional"`
	Range   *RangeMatch   `thrift:"6,optional"`
}

// The fields of a MatchParam, one type for each match kind.
type (
	ExactMatch struct {
		Key []byte `thrift:"1"`
	}
	LPMMatch struct {
		Key          []byte `thrift:"1"`
		PrefixLength int32  `thrift:"2"`
	}
	TernaryMatch struct {
		Key  []byte `thrift:"1"`
		Mask []byte `thrift:"2"`
	}
	ValidMatch struct {
		Key bool `thrift:"1"`
	}
	RangeMatch struct {
		Start []byte `thrift:"1"`
		End   []byte `thrift:"2"`
	}
)

// EntryOptions has the priority of an entry. The smallest priority wins.
type EntryOptions struct {
	Priority *int32 `thrift:"1,optional"`
}

// CounterValue is the content of one cell of a counter.
type CounterValue struct {
	Bytes   int64 `thrift:"1"`
	Packets int64 `thrift:"2"`
}

// MeterRate is one rate of a meter, in bytes or packets per microsecond.
type MeterRate struct {
	UnitsPerMicros float64 `thrift:"1"`
	BurstSize      int32   `thrift:"2"`
}

// PortInfo describes a port.
type PortInfo struct {
	PortNum   int32             `thrift:"1"`
	IfaceName string            `thrift:"2"`
	IsUp      bool              `thrift:"3"`
	Extra     map[string]string `thrift:"4"`
}

// CRC16Config has the parameters of a custom CRC of 16 bits.
type CRC16Config struct {
	Polynomial         int16 `thrift:"1"`
	InitialRemainder   int16 `thrift:"2"`
	FinalXorValue      int16 `thrift:"3"`
	DataReflected      bool  `thrift:"4"`
	RemainderReflected bool  `thrift:"5"`
}

// CRC32Config has the parameters of a custom CRC of 32 bits.
type CRC32Config struct {
	Polynomial         int32 `thrift:"1"`
	InitialRemainder   int32 `thrift:"2"`
	FinalXorValue      int32 `thrift:"3"`
	DataReflected      bool  `thrift:"4"`
	RemainderReflected bool  `thrift:"5"`
}

// ActionEntryType is the kind of an ActionEntry.
type ActionEntryType int32

// The values of ActionEntryType. A table without a default entry has ActionEntryTypeNone.
const (
	ActionEntryTypeNone ActionEntryType = iota
	ActionEntryTypeActionData
	ActionEntryTypeMbrHandle
	ActionEntryTypeGrpHandle
)

// ActionEntry describes what an entry refers to: an action, a member or a group.
type ActionEntry struct {
	ActionType ActionEntryType `thrift:"1"`
	ActionName *string         `thrift:"2,optional"`
	ActionData ActionData      `thrift:"3,optional"`
	MbrHandle  *Handle         `thrift:"4,optional"`
	GrpHandle  *Handle         `thrift:"5,optional"`
}

// EntryLife describes the age and the idle timeout of an entry.
type EntryLife struct {
	TimeoutMs      int32 `thrift:"1"`
	TimeSinceHitMs int32 `thrift:"2"`
}

// Entry is an entry of a table.
type Entry struct {
	MatchKey    MatchKey     `thrift:"1"`
	Options     EntryOptions `thrift:"2"`
	EntryHandle Handle       `thrift:"3"`
	ActionEntry ActionEntry  `thrift:"4"`
	Life        *EntryLife   `thrift:"5,optional"`
}

// Member is a member of an action profile.
type Member struct {
	MbrHandle  Handle     `thrift:"1"`
	ActionName string     `thrift:"2"`
	ActionData ActionData `thrift:"3"`
}

// Group is a group of an action selector.
type Group struct {
	GrpHandle  Handle   `thrift:"1"`
	MbrHandles []Handle `thrift:"2"`
}

// SwitchInfo describes the switch.
type SwitchInfo struct {
	DeviceID            int64   `thrift:"1"`
	ThriftPort          int32   `thrift:"2"`
	NotificationsSocket *string `thrift:"3,optional"`
	EloggerSocket       *string `thrift:"4,optional"`
	DebuggerSocket      *string `thrift:"5,optional"`
}

// ResourceType is a kind of object that has a name and an id.
type ResourceType int32

// The values of ResourceType.
const (
	ResourceTypeMatchTable ResourceType = iota
	ResourceTypeActionProfile
	ResourceTypeCounter
	ResourceTypeMeter
	ResourceTypeRegister
	ResourceTypeLearningList
)

// String implements fmt.Stringer.
func (t ResourceType) String() string {
	return nameOf(t, "MATCH_TABLE", "ACTION_PROFILE", "COUNTER", "METER", "REGISTER", "LEARNING_LIST")
}

// MirroringConfig is the destination of a mirroring session.
type MirroringConfig struct {
	Port *int32 `thrift:"1,optional"`
	Mgid *int32 `thrift:"2,optional"`
}

// Exception ends a call with an error code. The IDL has one exception for each kind of code.
type Exception[C ~int32] struct {
	Code C `thrift:"1"`
}

// Error implements error.
func (e *Exception[C]) Error() string { return "code " + strconv.Itoa(int(e.Code)) }
