package bmv2json

import "math/big"

// Program is one P4 program as p4c compiled it for BMv2.
type Program struct {
	Name         string // the P4 source file as named on p4c's command line
	Compiler     string
	Major, Minor int // version of the JSON format

	HeaderTypes []*HeaderType
	// Headers has every header instance, including metadata. Header.Index is the index in this
	// slice.
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
	// VL is the index in Fields of the field of variable length (varbit). It is -1 if there is
	// none. A type has at most one such field.
	VL int
	// MaxBytes is the largest size of a header with a varbit field, in bytes. It is 0 if the type
	// has no such field.
	MaxBytes int
	// FixedBits is the sum of the widths of all fields except the varbit field.
	FixedBits int
}

// Field is one field of a header type.
type Field struct {
	Name   string
	Index  int
	Width  int  // width in bits; for a varbit field, the largest width
	Signed bool // the field is in two's complement (int<W>)
	VL     bool // the field has variable length (varbit)
	Offset int  // bits from the start of the header, as if a preceding varbit field were empty
}

// Header is a header or metadata instance.
type Header struct {
	Name     string
	ID       int
	Index    int // index in Program.Headers
	Path     string
	Type     *HeaderType
	Metadata bool
	Omit     bool // "pi_omit": the compiler created the header, and a control plane can ignore it
	// Stack and StackIndex identify this header's element of a header stack. Union and UnionIndex
	// identify this header's member of a header union. Stack or Union is nil if the header is not
	// part of one.
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
	Headers    []*Header // in the same order as Type.Members
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

// Width returns the field's width in bits.
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

// LearnList contains the values that a call of digest() sends, in order.
type LearnList struct {
	Name     string
	ID       int
	Path     string
	Elements []*Expr
	Widths   []int // width of each element in bits
}

// Error is one member of the program's error type.
type Error struct {
	Name  string
	Value int
}

// Enum is an enum type of the program.
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

// Parser is the state machine of a P4 parser.
type Parser struct {
	Name   string
	ID     int
	Path   string
	Init   *ParseState // the first state; nil if the parser accepts at once
	States []*ParseState
}

// ParseState is one state of a parser.
type ParseState struct {
	Name        string
	ID          int
	Index       int // index in Parser.States
	Path        string
	Ops         []*ParserOp
	Key         []*Expr // each part is an OpField, OpStackField, OpUnionStackField or OpLookahead
	KeyWidths   []int   // width of each part of Key in bits
	Transitions []*Transition
}

// ParserOpKind is the kind of a parser operation.
type ParserOpKind int

// The parser operations.
const (
	// ParserExtract extracts into Header, into the next element of Stack, or into member
	// UnionMember of the next element of UnionStack.
	ParserExtract ParserOpKind = iota
	// ParserExtractVL extracts as ParserExtract does. Length is the length of the varbit field in
	// bits. MaxBytes is the size limit of the header, or 0 for the limit of its type.
	ParserExtractVL
	ParserSet       // assigns Value to Dest
	ParserVerify    // if Cond is false, stops with the error Value
	ParserAdvance   // skips Value bits
	ParserPrimitive // runs Primitive
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

// TransitionKind is the condition under which a parser takes a transition.
type TransitionKind int

// The kinds of transition.
const (
	TransDefault  TransitionKind = iota
	TransValue                   // taken if key & Mask == Value & Mask
	TransValueSet                // taken if the key, under Mask, is in Set
)

// Transition is one case of a select statement. Value and Mask concatenate the parts of the key.
// Each part is padded to whole bytes.
type Transition struct {
	Kind  TransitionKind
	Path  string
	Value []byte
	Mask  []byte // nil stands for all ones
	Set   *ValueSet
	Next  *ParseState // the next state; nil stands for accept
}

// ValueSet is a parser value set. The control plane adds its members.
type ValueSet struct {
	Name    string
	ID      int
	Index   int
	Path    string
	Width   int // bits of one member, with all its fields and without padding
	MaxSize int
	// Widths has the bits of each field of a member, according to the select statement that uses
	// the set. If no select statement uses the set, Widths has one field of Width bits.
	Widths []int
}

// Deparser writes the valid headers, in order, in front of the payload. It first updates the
// checksums.
type Deparser struct {
	Name       string
	ID         int
	Path       string
	Order      []*Header
	Primitives []*Primitive
}

// Meter is a meter array. If Direct is set, it is the direct meter of a table, which has one meter
// per entry.
type Meter struct {
	Name   string
	ID     int
	Index  int
	Path   string
	Bytes  bool // true if the meter counts bytes, false if it counts packets
	Rates  int
	Size   int
	Direct bool
	Table  *Table   // the table to which a direct meter belongs
	Result FieldRef // field in which a direct meter stores the colour
}

// Counter is a counter array, which always counts packets and bytes. If Direct is set, it is the
// direct counter of a table, which has one counter per entry.
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
	Width  int // width of a cell in bits
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
// A calculation omits inputs whose header is invalid.
type CalcInput struct {
	Field   FieldRef
	Header  *Header
	Const   *big.Int
	Width   int // bits of Field or of Const
	Payload bool
}

// Checksum connects a calculation with the field that contains its result. Verify and Update tell
// whether the program verifies and updates that field.
type Checksum struct {
	Name   string
	ID     int
	Path   string
	Target FieldRef
	Calc   *Calculation
	Verify bool
	Update bool
	Cond   *Expr // condition under which the checksum applies; nil stands for always
}

// ExternInstance is an extern object other than the built-in arrays. PSA's counters and meters are
// extern objects, too, and are also in Program.Counters and Program.Meters.
type ExternInstance struct {
	Name       string
	ID         int
	Index      int // index in Program.Externs
	Path       string
	Type       string
	Attributes map[string]Attribute
	Counter    *Counter // set for an extern of type "Counter"
	Meter      *Meter   // set for an extern of type "Meter"
}

// Attribute is a constructor argument of an extern object: a number or, if Number is nil, a string.
type Attribute struct {
	Path   string
	Number *big.Int
	Str    string
}

// Action is a sequence of primitives with parameters. p4c writes one action object per table that
// uses it, so an action's name is unique within a table but not within the program.
type Action struct {
	Name       string
	ID         int
	Index      int
	Path       string
	Params     []Param
	Primitives []*Primitive
}

// Param is a parameter of an action. The table entry contains the parameter's value.
type Param struct {
	Name  string
	Width int // width in bits
}

// Primitive is one call of a primitive. Args are resolved. The engine must check that Args match
// the primitive.
type Primitive struct {
	Op     string
	Path   string
	Source string // location and text of the statement, as "file(line) text"; "" if p4c writes none
	Args   []*Expr
}

// MatchKind is the match kind of one key of a table, or of a whole table.
type MatchKind int

// The match kinds. A table's own kind is the most general kind of its keys (Range, then Ternary,
// then LPM, then Exact).
const (
	MatchExact MatchKind = iota
	MatchLPM
	MatchTernary
	MatchRange
	MatchValid    // exact match on a header's validity
	MatchOptional // exact value, or don't care
)

func (k MatchKind) String() string {
	return [...]string{"exact", "lpm", "ternary", "range", "valid", "optional"}[k]
}

// Key is one key of a table.
type Key struct {
	Name  string
	Kind  MatchKind
	Field FieldRef
	Width int    // width in bits; 1 for MatchValid
	Mask  []byte // mask that the program applies to the field, (Width+7)/8 bytes, or nil
}

// TableKind tells where a table's actions are stored.
type TableKind int

// The kinds of tables.
const (
	TableSimple   TableKind = iota // actions are in the entries
	TableIndirect                  // entries refer to members of an action profile
	// entries refer to members or to groups of members (action selector)
	TableIndirectWS
)

// Node is a node of a pipeline's control flow: *Table, *Conditional or *ActionCall. A nil Node is
// the end of the pipeline.
type Node interface {
	// NodeName returns the name by which the JSON refers to the node.
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
	// Next has the next node after each action, with the same indices as Actions. If HitMiss is
	// set, Next is empty, and Hit and Miss apply instead.
	Next            []Node
	HitMiss         bool
	Hit, Miss       Node
	BaseDefaultNext Node // next node after a miss on a table without a default entry
	DirectMeter     *Meter
	WithCounters    bool
	// DirectCounter is the table's direct counter. It may be nil even if WithCounters is set, in
	// tables that the compiler creates.
	DirectCounter *Counter
	Default       *DefaultEntry
	ConstEntries  []ConstEntry
	// Const is set if the program fixes the table's entries, so that nothing can be added, changed
	// or removed at run time.
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

// DefaultEntry is the default action that the program assigns to a table.
type DefaultEntry struct {
	Action *Action
	// Index in Table.Actions, or -1 if the action is not among them. In tables that p4c creates for
	// a direct action call, the index is always -1.
	ActionIndex int
	Params      [][]byte
	ConstAction bool // set if the control plane may not change the action
	ConstEntry  bool // set if the control plane may not change the parameters
}

// KeyValue is the match of one key of a const entry, in the same form as target.FieldMatch.
type KeyValue struct {
	Value     []byte
	Mask      []byte // the mask of a ternary match, or the upper bound of a range
	PrefixLen int
}

// ConstEntry is a table entry that the program's source defines.
type ConstEntry struct {
	Path        string
	Match       []KeyValue
	Action      *Action
	ActionIndex int
	Params      [][]byte
	Priority    int // priority as in BMv2: the smallest wins
}

// ActionProfile holds the members that the entries of its tables refer to. With a Selector, it also
// holds groups of members.
type ActionProfile struct {
	Name     string
	ID       int
	Index    int
	Path     string
	MaxSize  int
	Selector *Selector
	Tables   []*Table // the tables that use this action profile; all have the same actions
}

// Selector describes how a hash selects a member of a group.
type Selector struct {
	Algo  string
	Input []CalcInput
}

// Conditional is an if statement.
type Conditional struct {
	Name string
	ID   int
	Path string
	// location and text of the condition, as "file(line) text"; "" if p4c writes none
	Source      string
	Expr        *Expr // condition of type TypeBool
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

// Pipeline is a control block: ingress or egress.
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
