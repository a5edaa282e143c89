package bmv2json

import (
	"fmt"
	"math/big"
	"path"
)

// fieldRef reads a reference to a field: [header, field].
func (r *reader) fieldRef(n node) FieldRef {
	l := n.tuple(2)
	h := find(r.index.headers, "header", l[0])
	if l[1].str() == "$valid$" {
		return FieldRef{Header: h}
	}
	return FieldRef{h, fieldOf(h.Type, l[1])}
}

func fieldOf(t *HeaderType, n node) *Field {
	name := n.str()
	for _, f := range t.Fields {
		if f.Name == name {
			return f
		}
	}
	fail(n.path, "header type %q has no field %q", t.Name, name)
	return nil
}

var exprOps = func() map[string]ExprOp {
	m := map[string]ExprOp{"dereference_stack": OpStackElem}
	for op := OpAdd; op <= OpStackSize; op++ {
		m[op.String()] = op
	}
	return m
}()

// typed reads an expression that must be of type t.
func (r *reader) typed(n node, t ExprType) *Expr {
	e := r.expr(n)
	if e.Type != t {
		fail(n.path, "expected %s, found %s (%s)", t, e.Type, e.Op)
	}
	return e
}

// expr reads an object with a type and a value: a leaf, an expression, or an argument of a
// primitive.
func (r *reader) expr(n node) *Expr {
	t := n.get("type").str()
	v := n.get("value")
	e := &Expr{Path: n.path}
	switch t {
	case "expression":
		if v.isObject() && !v.has("op") {
			return r.expr(v)
		}
		return r.operation(v)
	case "field":
		// If an expression selects the header, p4c writes [expression, name] for the header's field
		// or validity.
		if l := v.tuple(2); l[0].isObject() {
			return r.chosenField(e, l[0], l[1])
		}
		e.Op, e.Field = OpField, r.fieldRef(v)
		e.Width = e.Field.Width()
		e.Signed = e.Field.Field != nil && e.Field.Field.Signed
	case "hexstr":
		e.Op, e.Const = OpConst, v.hex()
	case "bool":
		e.Op, e.Type, e.Bool = OpBool, TypeBool, v.boolean()
	case "header":
		e.Op, e.Type, e.Header = OpHeader, TypeHeader, find(r.index.headers, "header", v)
	case "header_stack":
		// p4c also writes "header_stack" for stacks of unions.
		if s, ok := r.index.unionStacks[v.str()]; ok && r.index.stacks[v.str()] == nil {
			e.Op, e.Type, e.UnionStack = OpUnionStack, TypeUnionStack, s
			break
		}
		e.Op, e.Type, e.Stack = OpStack, TypeStack, find(r.index.stacks, "header stack", v)
	case "header_union":
		e.Op, e.Type, e.Union = OpUnion, TypeUnion, find(r.index.unions, "header union", v)
	case "header_union_stack":
		e.Op, e.Type, e.UnionStack = OpUnionStack, TypeUnionStack,
			find(r.index.unionStacks, "header union stack", v)
	case "local", "runtime_data":
		e.Op, e.Index = OpLocal, v.int()
		if e.Index < 0 || e.Index >= len(r.params) {
			fail(v.path, "parameter %d of an action that has %d", e.Index, len(r.params))
		}
		e.Width = r.params[e.Index].Width
	case "register":
		l := v.tuple(2)
		e.Op, e.Register, e.Left = OpRegister, find(r.index.registers, "register array", l[0]),
			r.typed(l[1], TypeData)
		e.Width = e.Register.Width
	case "stack_field":
		l := v.tuple(2)
		e.Op, e.Stack = OpStackField, find(r.index.stacks, "header stack", l[0])
		f := fieldOf(e.Stack.Type, l[1])
		e.Index, e.Width, e.Signed = f.Index, f.Width, f.Signed
	case "union_stack_field":
		l := v.tuple(3)
		e.Op, e.UnionStack = OpUnionStackField, find(r.index.unionStacks, "header union stack",
			l[0])
		e.Member = unionMember(e.UnionStack.Type, l[1])
		f := fieldOf(e.UnionStack.Type.Members[e.Member].Type, l[2])
		e.Index, e.Width, e.Signed = f.Index, f.Width, f.Signed
	case "lookahead":
		if !r.inParser {
			fail(n.path, "lookahead outside of a parser")
		}
		l := v.tuple(2)
		e.Op, e.Offset, e.Width = OpLookahead, l[0].nat(maxWidth), l[1].nat(maxWidth)
	case "calculation":
		e.Op, e.Type, e.Calc = OpCalculation, TypeOther,
			find(r.index.calculations, "calculation", v)
	case "counter_array":
		e.Op, e.Type, e.Counter = OpCounterArray, TypeOther,
			find(r.index.counters, "counter array", v)
	case "meter_array":
		e.Op, e.Type, e.Meter = OpMeterArray, TypeOther, find(r.index.meters, "meter array", v)
	case "register_array":
		e.Op, e.Type, e.Register = OpRegisterArray, TypeOther,
			find(r.index.registers, "register array", v)
	case "extern":
		e.Op, e.Type, e.Extern = OpExtern, TypeOther, find(r.index.externs, "extern instance", v)
	case "string":
		e.Op, e.Type, e.Str = OpString, TypeOther, v.str()
	case "parameters_vector":
		e.Op, e.Type = OpVector, TypeOther
		// p4c writes an empty object for an empty argument
		if v.isObject() && len(v.object()) == 0 {
			break
		}
		for _, a := range v.list() {
			e.Args = append(e.Args, r.typed(a, TypeData))
		}
	// An argument of PSA's externs. p4c omits the brackets of a list with one element.
	case "field_list":
		e.Op, e.Type = OpVector, TypeOther
		elements := []node{v}
		if !v.isObject() {
			elements = v.list()
		}
		for _, a := range elements {
			e.Args = append(e.Args, r.typed(a, TypeData))
		}
	default:
		fail(n.path+".type", "%q is not a known type of value", t)
	}
	return e
}

// chosenField reads a field of a header that an expression selects at run time. It can also read
// the header's validity, as a number.
func (r *reader) chosenField(e *Expr, of, name node) *Expr {
	h := r.operation(of)
	if h.Type != TypeHeader {
		fail(of.path, "expected %s, found %s (%s)", TypeHeader, h.Type, h.Op)
	}
	if name.str() == "$valid$" {
		e.Op, e.Right = OpBoolToData, &Expr{Op: OpValid, Type: TypeBool, Right: h, Path: e.Path}
		return e
	}
	f := fieldOf(HeaderTypeOf(h), name)
	e.Op, e.Left, e.Index, e.Width, e.Signed = OpAccessField, h, f.Index, f.Width, f.Signed
	return e
}

func unionMember(t *HeaderUnionType, n node) int {
	name := n.str()
	for i, m := range t.Members {
		if m.Name == name {
			return i
		}
	}
	fail(n.path, "header union type %q has no member %q", t.Name, name)
	return 0
}

// operation reads {op, left, right} and checks the types of the operands.
func (r *reader) operation(n node) *Expr {
	name := n.get("op").str()
	op, ok := exprOps[name]
	if !ok {
		fail(n.path+".op", "%q is not a known operation", name)
	}
	e := &Expr{Op: op, Path: n.path}
	left, right := n.opt("left"), n.opt("right")
	switch op {
	case OpAdd, OpSub, OpMul, OpDiv, OpMod, OpShl, OpShr, OpBitAnd, OpBitOr, OpBitXor, OpTwoCompMod,
		OpSatCast, OpUsatCast:
		if left.isNull() && (op == OpAdd || op == OpSub) { // the operator is unary
			e.Left = &Expr{Op: OpConst, Const: new(big.Int), Path: n.path}
		} else {
			e.Left = r.typed(left, TypeData)
		}
		e.Right = r.typed(right, TypeData)
		if op == OpTwoCompMod || op == OpSatCast || op == OpUsatCast {
			w := e.Right
			if w.Op != OpConst || w.Const.Sign() <= 0 || w.Const.BitLen() > 31 ||
				w.Const.Int64() > maxWidth {
				fail(right.path, "the width of %s must be a constant from 1 to %d", op, maxWidth)
			}
			e.Width = int(w.Const.Int64())
			e.Signed = op != OpUsatCast
		}
	case OpBitNot, OpDataToBool:
		e.Right = r.typed(right, TypeData)
	case OpBoolToData, OpNot:
		e.Right = r.typed(right, TypeBool)
	case OpLt, OpLe, OpGt, OpGe:
		e.Left, e.Right = r.typed(left, TypeData), r.typed(right, TypeData)
	case OpAnd, OpOr:
		e.Left, e.Right = r.typed(left, TypeBool), r.typed(right, TypeBool)
	case OpEq, OpNe:
		e.Left = r.expr(left)
		e.Right = r.typed(right, e.Left.Type)
		if t := e.Left.Type; t != TypeData && t != TypeBool && t != TypeHeader && t != TypeUnion {
			fail(n.path, "%s does not compare a %s", op, t)
		}
	case OpTernary:
		e.Cond = r.typed(n.get("cond"), TypeBool)
		e.Left = r.expr(left)
		e.Right = r.typed(right, e.Left.Type)
		if e.Left.Type == TypeHeader && HeaderTypeOf(e.Left) != HeaderTypeOf(e.Right) {
			fail(n.path, "%s chooses between headers of types %q and %q", op,
				HeaderTypeOf(e.Left).Name, HeaderTypeOf(e.Right).Name)
		}
		if t := e.Left.Type; t != TypeData && t != TypeBool && t != TypeHeader {
			fail(n.path, "%s does not choose between two of type %s", op, t)
		}
	case OpValid:
		e.Right = r.typed(right, TypeHeader)
	case OpValidUnion:
		e.Right = r.typed(right, TypeUnion)
	case OpStackElem:
		// p4c uses the same name for elements of header stacks and of union stacks.
		e.Left = r.expr(left)
		if e.Left.Type == TypeUnionStack {
			e.Op = OpUnionStackElem
		} else if e.Left.Type != TypeStack {
			fail(left.path, "expected %s, found %s", TypeStack, e.Left.Type)
		}
		e.Right = r.typed(right, TypeData)
	case OpUnionStackElem:
		e.Left, e.Right = r.typed(left, TypeUnionStack), r.typed(right, TypeData)
	case OpUnionHeader:
		e.Left, e.Index = r.typed(left, TypeUnion), right.int()
		if t := unionTypeOf(e.Left); e.Index < 0 || e.Index >= len(t.Members) {
			fail(right.path, "member %d of header union type %q, which has %d", e.Index, t.Name,
				len(t.Members))
		}
	case OpAccessField:
		e.Left, e.Index = r.typed(left, TypeHeader), right.int()
		t := HeaderTypeOf(e.Left)
		if e.Index < 0 || e.Index >= len(t.Fields) {
			fail(right.path, "field %d of header type %q, which has %d", e.Index, t.Name,
				len(t.Fields))
		}
		e.Width, e.Signed = t.Fields[e.Index].Width, t.Fields[e.Index].Signed
	case OpLastIndex, OpStackSize:
		e.Right = r.expr(right)
		if t := e.Right.Type; t != TypeStack && t != TypeUnionStack {
			fail(right.path, "expected %s, found %s", TypeStack, t)
		}
	}
	switch {
	case op >= OpEq && op <= OpValidUnion:
		e.Type = TypeBool
	case e.Op == OpStackElem, op == OpUnionHeader:
		e.Type = TypeHeader
	case e.Op == OpUnionStackElem:
		e.Type = TypeUnion
	case op == OpTernary:
		e.Type = e.Left.Type
	}
	return e
}

// HeaderTypeOf returns the type of the header that e yields. The type of e must be TypeHeader.
func HeaderTypeOf(e *Expr) *HeaderType {
	switch e.Op {
	case OpHeader:
		return e.Header.Type
	case OpStackElem:
		return e.Left.Stack.Type
	case OpTernary:
		return HeaderTypeOf(e.Left)
	default: // the remaining case is OpUnionHeader
		return unionTypeOf(e.Left).Members[e.Index].Type
	}
}

func unionTypeOf(e *Expr) *HeaderUnionType {
	if e.Op == OpUnion {
		return e.Union.Type
	}
	return e.Left.UnionStack.Type
}

// source returns an object's location in the P4 source for error messages, or "" if the JSON has
// none.
func source(n node) string {
	s, _ := n.opt("source_info").v.(map[string]any)
	file, _ := s["filename"].(string)
	text, _ := s["source_fragment"].(string)
	if s == nil || file == "" {
		return ""
	}
	return fmt.Sprintf("%s(%v) %s", path.Base(file), s["line"], text)
}

func (r *reader) primitive(n node) *Primitive {
	p := &Primitive{Op: n.get("op").str(), Path: n.path, Source: source(n)}
	for _, a := range n.get("parameters").list() {
		p.Args = append(p.Args, r.expr(a))
	}
	return p
}

func (r *reader) actions(root node) {
	for i, n := range root.get("actions").list() {
		a := &Action{Name: n.get("name").str(), ID: n.get("id").int(), Index: i, Path: n.path}
		for _, pn := range n.get("runtime_data").list() {
			p := Param{pn.get("name").str(), pn.get("bitwidth").nat(maxWidth)}
			if p.Width == 0 {
				fail(pn.path+".bitwidth", "a parameter of no width")
			}
			a.Params = append(a.Params, p)
		}
		r.params = a.Params
		for _, pn := range n.get("primitives").list() {
			a.Primitives = append(a.Primitives, r.primitive(pn))
		}
		r.params = nil
		addID(r.index.actionIDs, "action", n, a.ID, a)
		r.p.Actions = append(r.p.Actions, a)
	}
}
