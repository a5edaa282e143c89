package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// planWide reserves scratch memory for the statement that needs the most.
func (p *Plan) planWide(take func(int) int) {
	most := 0
	statement := func(list ...ir.Operand) {
		words := 0
		for _, o := range list {
			words += o.Words // space for a result that overwrites its own operands
			ir.WideSteps(o, func(o ir.Operand) { words += ir.StepWords(o) })
		}
		if words > len(list) {
			most = max(most, words)
		}
	}
	primitive := func(q *bmv2json.Primitive) {
		if types, ok := analysis.Primitives[q.Op]; ok && len(types) == len(q.Args) {
			statement(p.Operands(q)...)
		}
	}
	for _, a := range p.Prog.Actions {
		for _, q := range a.Primitives {
			primitive(q)
		}
	}
	for _, q := range p.Prog.Pipelines {
		for _, c := range q.Conditionals {
			statement(ir.NewOperand(c.Expr, 1))
		}
	}
	for _, q := range p.Prog.Parsers {
		for _, s := range q.States {
			for _, o := range s.Ops {
				if o.Primitive != nil {
					primitive(o.Primitive)
					continue
				}
				statement(analysis.ParserOperands(o)...)
			}
		}
	}
	p.Scratch = take(8 * most)
	p.ScratchEnd = p.Scratch + 8*most
}

// Operands returns the expressions that a primitive computes. A statement that stores more than 64
// bits needs as many words of scratch memory as it stores.
func (p *Plan) Operands(q *bmv2json.Primitive) (out []ir.Operand) {
	if _, ok := arithmetic[q.Op]; ok {
		return []ir.Operand{ir.NewOperand(p.ArithmeticOf(q), ir.WordsOf(q.Args[0].Width))}
	}
	for i, a := range q.Args {
		words := 1
		switch {
		case i == 1 && (q.Op == "assign" || q.Op == "modify_field"):
			words = ir.WordsOf(q.Args[0].Width)
		case i == 2 && q.Op == "register_write" && q.Args[0].Register != nil:
			words = ir.WordsOf(q.Args[0].Register.Width)
		case q.Op == "_jump_if_zero" || q.Op == "assume" || q.Op == "assert":
			if a.Type == bmv2json.TypeData {
				words = ir.ExactWords(a)
			}
		}
		if a.Type == bmv2json.TypeData || a.Type == bmv2json.TypeBool {
			out = append(out, ir.NewOperand(a, words))
		}
	}
	return out
}

// arithmetic maps the primitives of P4_14 that store the result of one operation to this operation.
var arithmetic = map[string]bmv2json.ExprOp{
	"add_to_field": bmv2json.OpAdd, "subtract_from_field": bmv2json.OpSub, "add": bmv2json.OpAdd,
	"subtract": bmv2json.OpSub,
	"bit_xor":  bmv2json.OpBitXor, "bit_or": bmv2json.OpBitOr, "bit_and": bmv2json.OpBitAnd,
	"shift_left": bmv2json.OpShl, "shift_right": bmv2json.OpShr,
}

// ArithmeticOf returns the operation of a P4_14 arithmetic primitive as an expression.
func (p *Plan) ArithmeticOf(q *bmv2json.Primitive) *bmv2json.Expr {
	if e, ok := p.operations[q]; ok {
		return e
	}
	l, r := q.Args[0], q.Args[1]
	if len(q.Args) == 3 {
		l, r = q.Args[1], q.Args[2]
	}
	e := &bmv2json.Expr{Op: arithmetic[q.Op], Type: bmv2json.TypeData, Left: l, Right: r,
		Path: q.Path}
	p.operations[q] = e
	return e
}
