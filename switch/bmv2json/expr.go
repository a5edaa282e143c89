package bmv2json

import "math/big"

// ExprOp is the kind of an expression: a leaf that names something, or an operation on
// sub-expressions.
type ExprOp int

// Leaves. The operations after OpLookahead occur only as arguments of primitives, never inside
// expressions. The comment of a constant names the members of Expr that the operation uses.
const (
	OpField      ExprOp = iota // uses Expr.Field
	OpConst                    // uses Expr.Const, a number of any size and sign
	OpBool                     // uses Expr.Bool
	OpHeader                   // uses Expr.Header
	OpStack                    // uses Expr.Stack
	OpUnion                    // uses Expr.Union
	OpUnionStack               // uses Expr.UnionStack
	OpLocal                    // the parameter number Expr.Index of the enclosing action
	OpRegister                 // the cell Expr.Left of Expr.Register
	OpStackField               // field Expr.Index of the last valid header of Expr.Stack
	// field Expr.Index of member Expr.Member of the last valid union of Expr.UnionStack
	OpUnionStackField
	OpLookahead // Expr.Width bits, Expr.Offset bits after the parser's cursor

	OpCalculation   // uses Expr.Calc
	OpCounterArray  // uses Expr.Counter
	OpMeterArray    // uses Expr.Meter
	OpRegisterArray // uses Expr.Register
	OpExtern        // uses Expr.Extern
	OpString        // uses Expr.Str
	OpVector        // uses Expr.Args

	// Arithmetic operations on integers of unlimited size. Storing a result truncates it.
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
	OpBitNot     // uses Expr.Right
	OpTwoCompMod // Expr.Left reduced to a signed number of Expr.Right bits
	OpSatCast    // Expr.Left clamped to a signed number of Expr.Right bits
	OpUsatCast   // Expr.Left clamped to an unsigned number of Expr.Right bits
	OpTernary    // Expr.Cond ? Expr.Left : Expr.Right
	OpBoolToData // uses Expr.Right

	// Operations whose results are conditions.
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpAnd
	OpOr
	OpNot        // uses Expr.Right
	OpDataToBool // uses Expr.Right
	OpValid      // validity of the header Expr.Right
	OpValidUnion // validity of the header union Expr.Right

	// Operations that yield a header, stack, union, field or stack size.
	OpStackElem      // header number Expr.Right of the stack Expr.Left
	OpUnionStackElem // union number Expr.Right of the union stack Expr.Left
	OpUnionHeader    // member number Expr.Index of the union Expr.Left
	OpAccessField    // field number Expr.Index of the header Expr.Left
	OpLastIndex      // index of the last valid header of the stack Expr.Right
	OpStackSize      // number of valid headers of the stack Expr.Right
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

// The types of expressions.
const (
	TypeData   ExprType = iota // an integer
	TypeBool                   //
	TypeHeader                 // a header instance
	TypeStack
	TypeUnion
	TypeUnionStack
	TypeOther // a register, counter, meter, string or other value that occurs only as an argument
)

func (t ExprType) String() string {
	return [...]string{"data", "bool", "header", "header stack", "header union",
		"header union stack", "other"}[t]
}

// Expr is an expression, or an argument of a primitive. Op determines which other members are used
// (see the constants of ExprOp).
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
	Width      int // width in bits; set for OpLookahead, OpLocal, OpField and OpStackField
	Signed     bool
}
