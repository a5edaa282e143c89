package bmv2json

import "math/big"

// ExprOp is the kind of an expression: a leaf that names something, or an operation on
// sub-expressions.
type ExprOp int

// Leaves. Those after OpLookahead occur only as arguments of primitives, never inside expressions.
// The comment of a constant names the members of Expr that it uses.
const (
	OpField      ExprOp = iota // Field
	OpConst                    // Const, of any size and sign
	OpBool                     // Bool
	OpHeader                   // Header
	OpStack                    // Stack
	OpUnion                    // Union
	OpUnionStack               // UnionStack
	OpLocal                    // the enclosing action's parameter at Index
	OpRegister                 // cell Left of Register
	OpStackField               // field Index of the last valid header of Stack
	// field Index of member Member of the last valid union of UnionStack
	OpUnionStackField
	OpLookahead // Width bits at Offset bits from the parser's cursor

	OpCalculation   // Calc
	OpCounterArray  // Counter
	OpMeterArray    // Meter
	OpRegisterArray // Register
	OpExtern        // Extern
	OpString        // Str
	OpVector        // Args

	// Arithmetic on unbounded integers, which are truncated when they are stored.
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMod
	OpShl
	OpShr
	OpBitAnd
	OpBitOr
	OpBitXor
	OpBitNot     // Right
	OpTwoCompMod // Left reduced to a signed number of Right bits
	OpSatCast    // Left clamped to a signed number of Right bits
	OpUsatCast   // Left clamped to an unsigned number of Right bits
	OpTernary    // Cond ? Left : Right
	OpBoolToData // Right

	// Conditions.
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpAnd
	OpOr
	OpNot        // Right
	OpDataToBool // Right
	OpValid      // Right, a header
	OpValidUnion // Right, a union

	// Headers, stacks and unions as operands.
	OpStackElem      // header Right of Left, a stack
	OpUnionStackElem // union Right of Left, a union stack
	OpUnionHeader    // member Index of Left, a union
	OpAccessField    // field Index of Left, a header
	OpLastIndex      // index of the last valid header of Right, a stack
	OpStackSize      // number of valid headers of Right, a stack
)

var opNames = map[ExprOp]string{
	OpField: "field", OpConst: "hexstr", OpBool: "bool", OpHeader: "header",
	OpStack: "header_stack", OpUnion: "header_union",
	OpUnionStack: "header_union_stack", OpLocal: "local", OpRegister: "register",
	OpStackField:      "stack_field",
	OpUnionStackField: "union_stack_field", OpLookahead: "lookahead", OpCalculation: "calculation",
	OpCounterArray: "counter_array",
	OpMeterArray:   "meter_array", OpRegisterArray: "register_array", OpExtern: "extern",
	OpString: "string", OpVector: "parameters_vector",
	OpAdd: "+", OpSub: "-", OpMul: "*", OpDiv: "/", OpMod: "%", OpShl: "<<", OpShr: ">>",
	OpBitAnd: "&", OpBitOr: "|", OpBitXor: "^", OpBitNot: "~",
	OpTwoCompMod: "two_comp_mod", OpSatCast: "sat_cast", OpUsatCast: "usat_cast", OpTernary: "?",
	OpBoolToData: "b2d",
	OpEq:         "==", OpNe: "!=", OpLt: "<", OpLe: "<=", OpGt: ">", OpGe: ">=", OpAnd: "and",
	OpOr:  "or",
	OpNot: "not", OpDataToBool: "d2b",
	OpValid: "valid", OpValidUnion: "valid_union", OpStackElem: "dereference_header_stack",
	OpUnionStackElem: "dereference_union_stack",
	OpUnionHeader:    "access_union_header", OpAccessField: "access_field",
	OpLastIndex: "last_stack_index", OpStackSize: "size_stack",
}

// String returns the JSON's name of the operation.
func (o ExprOp) String() string { return opNames[o] }

// ExprType is the type of an expression's value.
type ExprType int

// The types.
const (
	TypeData   ExprType = iota // an integer
	TypeBool                   //
	TypeHeader                 // a header instance
	TypeStack
	TypeUnion
	TypeUnionStack
	TypeOther // arrays and strings, which occur only as arguments
)

func (t ExprType) String() string {
	return [...]string{"data", "bool", "header", "header stack", "header union",
		"header union stack", "other"}[t]
}

// Expr is an expression or an argument of a primitive. Op determines which members are used (see
// the constants of ExprOp).
type Expr struct {
	Op   ExprOp
	Type ExprType
	Path string

	Cond, Left, Right *Expr

	Field      FieldRef
	Const      *big.Int
	Bool       bool
	Header     *Header
	Stack      *HeaderStack
	Union      *HeaderUnion
	UnionStack *HeaderUnionStack
	Register   *Register
	Counter    *Counter
	Meter      *Meter
	Calc       *Calculation
	Extern     *ExternInstance
	Str        string
	Args       []*Expr
	Index      int
	Member     int
	Offset     int
	Width      int // in bits; set for OpLookahead, OpLocal, OpField and OpStackField
	Signed     bool
}
