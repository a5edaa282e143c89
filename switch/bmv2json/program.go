package bmv2json

import "math/big"

// Program is one P4 program as p4c compiled it for BMv2.
type Program struct {
	Name         string // the P4 source file as named on p4c's command line
	Compiler     string
	Major, Minor int // version of the JSON format

	HeaderTypes []*HeaderType
	// every instance, metadata included; Header.Index is the index in this slice
	Headers      []*Header
	Stacks       []*HeaderStack
	UnionTypes   []*HeaderUnionType
	Unions       []*HeaderUnion
	UnionStacks  []*HeaderUnionStack
	FieldLists   []*FieldList
	LearnLists   []*LearnList
	Errors       []*Error
	Enums        []*Enum
	Parsers      []*Parser
	ValueSets    []*ValueSet
	Deparsers    []*Deparser
	Meters       []*Meter
	Counters     []*Counter
	Registers    []*Register
	Calculations []*Calculation
	Actions      []*Action
	Pipelines    []*Pipeline
	Checksums    []*Checksum
	Externs      []*ExternInstance
	// Aliases maps target names, such as "queueing_metadata.enq_qdepth", to the program's fields
	Aliases map[string]FieldRef

	index index
}

// HeaderType is the layout of a header or of a metadata struct.
type HeaderType struct {
	Name   string
	ID     int
	Path   string
	Fields []*Field
	// VL is the index in Fields of the field of variable length (varbit), or -1: a type has at most
	// one.
	VL int
	// MaxBytes is the largest size of a header with a varbit field, in bytes; 0 if there is none.
	MaxBytes int
	// FixedBits is the sum of the widths of all fields but the varbit one.
	FixedBits int
}

// Field is one field of a header type.
type Field struct {
	Name   string
	Index  int
	Width  int  // bits; for a varbit field its largest width
	Signed bool // two's complement (int<W>)
	VL     bool // varbit
	Offset int  // bits from the start of the header, counting a varbit field before it as empty
}

// Header is a header or metadata instance.
type Header struct {
	Name     string
	ID       int
	Index    int // in Program.Headers
	Path     string
	Type     *HeaderType
	Metadata bool
	Omit     bool // "pi_omit": made by the compiler, and irrelevant to a control plane
	// Stack and StackIndex say which element of which stack this is, and Union and UnionIndex which
	// member of which union. Stack or Union is nil if the header is not in one.
	Stack      *HeaderStack
	StackIndex int
	Union      *HeaderUnion
	UnionIndex int
}

// HeaderStack is an array of headers of one type.
type HeaderStack struct {
	Name    string
	ID      int
	Index   int
	Path    string
	Type    *HeaderType
	Headers []*Header
}

// HeaderUnionType lists the members that a header union has.
type HeaderUnionType struct {
	Name    string
	ID      int
	Path    string
	Members []UnionMember
}

// UnionMember is one alternative of a header union.
type UnionMember struct {
	Name string
	Type *HeaderType
}

// HeaderUnion is a header union instance: at most one of Headers is valid.
type HeaderUnion struct {
	Name       string
	ID         int
	Index      int
	Path       string
	Type       *HeaderUnionType
	Headers    []*Header // in the order of Type.Members
	Stack      *HeaderUnionStack
	StackIndex int
}

// HeaderUnionStack is an array of header unions.
type HeaderUnionStack struct {
	Name   string
	ID     int
	Index  int
	Path   string
	Type   *HeaderUnionType
	Unions []*HeaderUnion
}

// FieldRef is a field of a header instance. Field is nil for the hidden one-bit field "$valid$",
// which is the header's validity.
type FieldRef struct {
	Header *Header
	Field  *Field
}

// IsZero reports whether r refers to no field.
func (r FieldRef) IsZero() bool { return r.Header == nil }

// IsValidity reports whether r is the hidden "$valid$" field.
func (r FieldRef) IsValidity() bool { return r.Header != nil && r.Field == nil }

// Width is the field's width in bits.
func (r FieldRef) Width() int {
	if r.Field == nil {
		return 1
	}
	return r.Field.Width
}

func (r FieldRef) String() string {
	switch {
	case r.Header == nil:
		return "<none>"
	case r.Field == nil:
		return r.Header.Name + ".$valid$"
	}
	return r.Header.Name + "." + r.Field.Name
}

// FieldList is the set of fields that a clone, resubmit or recirculate keeps. The primitive refers
// to it by its ID.
type FieldList struct {
	Name   string
	ID     int
	Path   string
	Fields []FieldRef
}

// LearnList has the values that digest() sends, in order.
type LearnList struct {
	Name     string
	ID       int
	Path     string
	Elements []*Expr
	Widths   []int // bits of each element
}

// Error is one member of the program's error type.
type Error struct {
	Name  string
	Value int
}

// Enum is an enum in p4c's output.
type Enum struct {
	Name    string
	Path    string
	Entries []EnumEntry
}

// EnumEntry is one constant of an enum.
type EnumEntry struct {
	Name  string
	Value int
}

// Parser is a state machine.
type Parser struct {
	Name   string
	ID     int
	Path   string
	Init   *ParseState // the first state; nil: the parser accepts at once
	States []*ParseState
}

// ParseState is one state of a parser.
type ParseState struct {
	Name        string
	ID          int
	Index       int // in Parser.States
	Path        string
	Ops         []*ParserOp
	Key         []*Expr // OpField, OpStackField, OpUnionStackField or OpLookahead
	KeyWidths   []int   // bits of each part of Key
	Transitions []*Transition
}

// ParserOpKind is the kind of a parser operation.
type ParserOpKind int

// The parser operations.
const (
	// extract into Header, the next element of Stack, or member UnionMember of the next element of
	// UnionStack
	ParserExtract ParserOpKind = iota
	// like ParserExtract; Length is the varbit field's length in bits, and MaxBytes the header's
	// size limit (0: its type's)
	ParserExtractVL
	ParserSet       // Dest = Value
	ParserVerify    // Cond, otherwise stop with the error Value
	ParserAdvance   // skip Value bits
	ParserPrimitive // run Primitive
)

// ParserOp is one operation of a parser state.
type ParserOp struct {
	Kind        ParserOpKind
	Path        string
	Header      *Header
	Stack       *HeaderStack
	UnionStack  *HeaderUnionStack
	UnionMember int
	Length      *Expr
	Dest        FieldRef
	Value       *Expr
	Cond        *Expr
	Primitive   *Primitive
}

// TransitionKind says how a transition is taken.
type TransitionKind int

// The kinds of transition.
const (
	TransDefault  TransitionKind = iota
	TransValue                   // key & Mask == Value & Mask
	TransValueSet                // the key, under Mask, is in Set
)

// Transition is one case of a select. Value and Mask are the concatenation of the parts of the key,
// each padded to whole bytes.
type Transition struct {
	Kind  TransitionKind
	Path  string
	Value []byte
	Mask  []byte // nil: all ones
	Set   *ValueSet
	Next  *ParseState // nil: accept
}

// ValueSet is a parser value set, filled by the control plane.
type ValueSet struct {
	Name    string
	ID      int
	Index   int
	Path    string
	Width   int // bits of one member, all its fields together without padding
	MaxSize int
	// Widths has the bits of each field of a member, taken from the select that uses the set; one
	// field of Width bits if no select does
	Widths []int
}

// Deparser writes the valid headers in order before the payload. Calculations of checksums run
// before it.
type Deparser struct {
	Name       string
	ID         int
	Path       string
	Order      []*Header
	Primitives []*Primitive
}

// Meter is a meter array, or, if Direct, the meters of a table's entries.
type Meter struct {
	Name   string
	ID     int
	Index  int
	Path   string
	Bytes  bool // counts bytes, not packets
	Rates  int
	Size   int
	Direct bool
	Table  *Table   // the table of a direct meter
	Result FieldRef // field in which a direct meter stores the colour
}

// Counter is a counter array (always packets and bytes), or, if Direct, the counters of a table's
// entries.
type Counter struct {
	Name   string
	ID     int
	Index  int
	Path   string
	Size   int
	Direct bool
	Table  *Table
}

// Register is a register array.
type Register struct {
	Name   string
	ID     int
	Index  int
	Path   string
	Size   int
	Width  int // bits
	Signed bool
}

// Calculation is a hash or checksum over a list of inputs.
type Calculation struct {
	Name  string
	ID    int
	Index int
	Path  string
	Algo  string
	Input []CalcInput
}

// CalcInput is one input of a calculation. Exactly one of Field, Header, Const and Payload is set.
// A calculation leaves out inputs whose header is invalid.
type CalcInput struct {
	Field   FieldRef
	Header  *Header
	Const   *big.Int
	Width   int // bits of Field or Const
	Payload bool
}

// Checksum ties a calculation to the field that it verifies and updates.
type Checksum struct {
	Name   string
	ID     int
	Path   string
	Target FieldRef
	Calc   *Calculation
	Verify bool
	Update bool
	Cond   *Expr // condition under which the checksum applies; nil: always
}

// ExternInstance is an extern object that is not one of the built-in arrays. PSA's counters and
// meters are among them; they are in Program.Counters and Program.Meters, too.
type ExternInstance struct {
	Name       string
	ID         int
	Index      int // in Program.Externs
	Path       string
	Type       string
	Attributes map[string]Attribute
	Counter    *Counter // for type "Counter"
	Meter      *Meter   // for type "Meter"
}

// Attribute is an argument of an extern object: a number or, if Number is nil, a string.
type Attribute struct {
	Path   string
	Number *big.Int
	Str    string
}

// Action is a sequence of primitives with parameters. p4c writes one action object per table that
// uses it, so names are unique within a table, but not in a program.
type Action struct {
	Name       string
	ID         int
	Index      int
	Path       string
	Params     []Param
	Primitives []*Primitive
}

// Param is a parameter of an action, whose value is in the table entry.
type Param struct {
	Name  string
	Width int // bits
}

// Primitive is one call. Args are resolved, but not checked against the primitive: the engine that
// knows the primitive does that.
type Primitive struct {
	Op     string
	Path   string
	Source string // the statement, "file(line) text"; "" if p4c writes none
	Args   []*Expr
}

// MatchKind is the kind of match of one key of a table, or of a whole table.
type MatchKind int

// The match kinds. A table's own kind is the most general kind of its keys (Range, then Ternary,
// then LPM, then Exact).
const (
	MatchExact MatchKind = iota
	MatchLPM
	MatchTernary
	MatchRange
	MatchValid    // exact match on a header's validity
	MatchOptional // exact or don't care
)

func (k MatchKind) String() string {
	return [...]string{"exact", "lpm", "ternary", "range", "valid", "optional"}[k]
}

// Key is one key of a table.
type Key struct {
	Name  string
	Kind  MatchKind
	Field FieldRef
	Width int    // bits; 1 for a valid match
	Mask  []byte // a static mask on the field, (Width+7)/8 bytes, or nil
}

// TableKind says where the actions of a table's entries are stored.
type TableKind int

// The kinds of table.
const (
	TableSimple     TableKind = iota // in the entry
	TableIndirect                    // in a member of an action profile
	TableIndirectWS                  // in a member, or a group of members (action selector)
)

// Node is a node of a pipeline's control flow: *Table, *Conditional or *ActionCall. A nil Node is
// the end of the pipeline.
type Node interface {
	// NodeName is the name under which the JSON refers to the node.
	NodeName() string
}

// Table is a match-action table.
type Table struct {
	Name           string
	ID             int
	Index          int // index in Program.Tables()
	Path           string
	Pipeline       *Pipeline
	Match          MatchKind
	Kind           TableKind
	ActionProfile  *ActionProfile // nil for a simple table
	MaxSize        int
	SupportTimeout bool
	Keys           []Key
	Actions        []*Action
	// Next has, for each action, the node after it, by the same index. If HitMiss is set, Next is
	// empty, and Hit and Miss are used instead.
	Next            []Node
	HitMiss         bool
	Hit, Miss       Node
	BaseDefaultNext Node // after a miss on a table that has no default entry
	DirectMeter     *Meter
	WithCounters    bool
	// DirectCounter has the direct counters' name; it may be nil even if WithCounters is set (in
	// tables made by the compiler)
	DirectCounter *Counter
	Default       *DefaultEntry
	ConstEntries  []ConstEntry
	// Const: the JSON has the entries, and nothing may be added, changed or removed at run time
	Const bool
}

// NodeName implements Node.
func (t *Table) NodeName() string { return t.Name }

// Action returns the table's action of that name and its index in t.Actions, or nil and -1.
func (t *Table) Action(name string) (*Action, int) {
	for i, a := range t.Actions {
		if a.Name == name {
			return a, i
		}
	}
	return nil, -1
}

// NeedsPriority reports whether the table's entries have a priority.
func (t *Table) NeedsPriority() bool { return t.Match == MatchTernary || t.Match == MatchRange }

// DefaultEntry is the default action that the program sets.
type DefaultEntry struct {
	Action *Action
	// index in Table.Actions; -1 if the action is not among them (in tables that p4c makes for a
	// direct action call it always is)
	ActionIndex int
	Params      [][]byte
	ConstAction bool // the control plane may not change the action
	ConstEntry  bool // the control plane may not change the parameters either
}

// KeyValue is the match of one key of a const entry, in the form of target.FieldMatch.
type KeyValue struct {
	Value     []byte
	Mask      []byte // ternary: mask; range: the high bound
	PrefixLen int
}

// ConstEntry is an entry that is part of the program's source.
type ConstEntry struct {
	Path        string
	Match       []KeyValue
	Action      *Action
	ActionIndex int
	Params      [][]byte
	Priority    int // BMv2's: the smallest wins
}

// ActionProfile holds the members (and, with a Selector, groups) of the tables that use it.
type ActionProfile struct {
	Name     string
	ID       int
	Index    int
	Path     string
	MaxSize  int
	Selector *Selector
	Tables   []*Table // the tables that use it, which all have the same actions
}

// Selector says how a hash chooses a member of a group.
type Selector struct {
	Algo  string
	Input []CalcInput
}

// Conditional is an if.
type Conditional struct {
	Name        string
	ID          int
	Path        string
	Source      string // the condition, "file(line) text"; "" if p4c writes none
	Expr        *Expr  // of type TypeBool
	True, False Node
}

// NodeName implements Node.
func (c *Conditional) NodeName() string { return c.Name }

// ActionCall is an action called outside of any table. p4c writes a table without keys instead.
type ActionCall struct {
	Name   string
	ID     int
	Path   string
	Action *Action
	Next   Node
}

// NodeName implements Node.
func (a *ActionCall) NodeName() string { return a.Name }

// Pipeline is a control: ingress or egress.
type Pipeline struct {
	Name           string
	ID             int
	Path           string
	Init           Node
	Tables         []*Table
	ActionProfiles []*ActionProfile
	Conditionals   []*Conditional
	ActionCalls    []*ActionCall
}
