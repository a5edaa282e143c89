package expression

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/testutil"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// The test below compiles random expressions over fields of many widths. It compares the results
// with those of math/big, because BMv2 also uses integers of any size.

var (
	zero = new(big.Int)
	one  = big.NewInt(1)
)

func pow2(n int) *big.Int { return new(big.Int).Lsh(one, uint(n)) }

// exprMaker creates random expressions.
type exprMaker struct {
	r      *rand.Rand
	header *bmv2json.Header
}

func (m *exprMaker) field() *bmv2json.Expr {
	f := m.header.Type.Fields[m.r.IntN(len(m.header.Type.Fields))]
	return &bmv2json.Expr{Op: bmv2json.OpField, Field: bmv2json.FieldRef{Header: m.header,
		Field: f}, Width: f.Width, Signed: f.Signed}
}

func (m *exprMaker) constant(v *big.Int) *bmv2json.Expr {
	return &bmv2json.Expr{Op: bmv2json.OpConst, Const: v}
}

func (m *exprMaker) number() *big.Int {
	switch m.r.IntN(4) {
	case 0:
		return big.NewInt(int64(m.r.IntN(5)))
	case 1: // a mask as p4c writes it
		return new(big.Int).Sub(pow2(1+m.r.IntN(140)), one)
	case 2:
		return pow2(m.r.IntN(140))
	}
	v := testutil.RandomBits(m.r, 1+m.r.IntN(140))
	if m.r.IntN(3) == 0 {
		v.Neg(v)
	}
	return v
}

var dataOps = []bmv2json.ExprOp{
	bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpBitAnd, bmv2json.OpBitAnd,
	bmv2json.OpBitOr, bmv2json.OpBitXor, bmv2json.OpBitNot,
	bmv2json.OpShl, bmv2json.OpShr, bmv2json.OpTwoCompMod, bmv2json.OpSatCast, bmv2json.OpUsatCast,
	bmv2json.OpTernary, bmv2json.OpBoolToData,
	bmv2json.OpDiv, bmv2json.OpMod,
}

func (m *exprMaker) data(depth int) *bmv2json.Expr {
	if depth == 0 || m.r.IntN(6) == 0 {
		if m.r.IntN(3) == 0 {
			return m.constant(m.number())
		}
		return m.field()
	}
	e := &bmv2json.Expr{Op: dataOps[m.r.IntN(len(dataOps))]}
	switch e.Op {
	case bmv2json.OpBitNot:
		e.Right = m.data(depth - 1)
	case bmv2json.OpBoolToData:
		e.Right = m.boolean(depth - 1)
	case bmv2json.OpTernary:
		e.Cond, e.Left, e.Right = m.boolean(depth-1), m.data(depth-1), m.data(depth-1)
	case bmv2json.OpTwoCompMod, bmv2json.OpSatCast, bmv2json.OpUsatCast:
		e.Width, e.Signed = 1+m.r.IntN(140), e.Op != bmv2json.OpUsatCast
		e.Left, e.Right = m.data(depth-1), m.constant(big.NewInt(int64(e.Width)))
	case bmv2json.OpShl, bmv2json.OpShr:
		e.Left = m.data(depth - 1)
		if m.r.IntN(2) == 0 {
			e.Right = m.constant(big.NewInt(int64(m.r.IntN(200))))
		} else { // use a small unsigned field
			e.Right = &bmv2json.Expr{Op: bmv2json.OpBitAnd, Left: m.field(),
				Right: m.constant(big.NewInt(255))}
		}
	default:
		e.Left, e.Right = m.data(depth-1), m.data(depth-1)
	}
	return e
}

var boolOps = []bmv2json.ExprOp{
	bmv2json.OpEq, bmv2json.OpNe, bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe,
	bmv2json.OpAnd, bmv2json.OpOr, bmv2json.OpNot,
	bmv2json.OpDataToBool,
}

func (m *exprMaker) boolean(depth int) *bmv2json.Expr {
	e := &bmv2json.Expr{Op: boolOps[m.r.IntN(len(boolOps))], Type: bmv2json.TypeBool}
	switch e.Op {
	case bmv2json.OpAnd, bmv2json.OpOr:
		if depth == 0 {
			return &bmv2json.Expr{Op: bmv2json.OpBool, Type: bmv2json.TypeBool,
				Bool: m.r.IntN(2) == 0}
		}
		e.Left, e.Right = m.boolean(depth-1), m.boolean(depth-1)
	case bmv2json.OpNot:
		if depth == 0 {
			return &bmv2json.Expr{Op: bmv2json.OpBool, Type: bmv2json.TypeBool, Bool: true}
		}
		e.Right = m.boolean(depth - 1)
	case bmv2json.OpDataToBool:
		e.Right = m.data(max(depth-1, 0))
	default:
		e.Left, e.Right = m.data(max(depth-1, 0)), m.data(max(depth-1, 0))
	}
	return e
}

// reference evaluates expressions with integers of any size, as BMv2 does.
type reference struct{ fields map[*bmv2json.Field]*big.Int }

func (r *reference) data(e *bmv2json.Expr) *big.Int {
	switch e.Op {
	case bmv2json.OpConst:
		return e.Const
	case bmv2json.OpField:
		return r.fields[e.Field.Field]
	case bmv2json.OpBitNot:
		return new(big.Int).Not(r.data(e.Right))
	case bmv2json.OpBoolToData:
		if r.boolean(e.Right) {
			return one
		}
		return zero
	case bmv2json.OpTernary:
		if r.boolean(e.Cond) {
			return r.data(e.Left)
		}
		return r.data(e.Right)
	}
	a, b, out := r.data(e.Left), r.data(e.Right), new(big.Int)
	switch e.Op {
	case bmv2json.OpAdd:
		return out.Add(a, b)
	case bmv2json.OpSub:
		return out.Sub(a, b)
	case bmv2json.OpMul:
		return out.Mul(a, b)
	case bmv2json.OpDiv, bmv2json.OpMod:
		if b.Sign() == 0 {
			return zero
		}
		if e.Op == bmv2json.OpDiv {
			return out.Quo(a, b)
		}
		return out.Rem(a, b)
	case bmv2json.OpBitAnd:
		return out.And(a, b)
	case bmv2json.OpBitOr:
		return out.Or(a, b)
	case bmv2json.OpBitXor:
		return out.Xor(a, b)
	case bmv2json.OpShl:
		return out.Lsh(a, uint(b.Int64()))
	case bmv2json.OpShr:
		return out.Rsh(a, uint(b.Int64()))
	case bmv2json.OpTwoCompMod:
		return fromBits(new(big.Int).And(a, new(big.Int).Sub(pow2(e.Width), one)), e.Width, true)
	default:
		bound := interval.Integers(e.Width, e.Signed)
		if a.Cmp(bound.Lo) < 0 {
			return bound.Lo
		}
		return interval.Min(a, bound.Hi)
	}
}

func (r *reference) boolean(e *bmv2json.Expr) bool {
	switch e.Op {
	case bmv2json.OpBool:
		return e.Bool
	case bmv2json.OpAnd:
		return r.boolean(e.Left) && r.boolean(e.Right)
	case bmv2json.OpOr:
		return r.boolean(e.Left) || r.boolean(e.Right)
	case bmv2json.OpNot:
		return !r.boolean(e.Right)
	case bmv2json.OpDataToBool:
		return r.data(e.Right).Sign() != 0
	}
	c := r.data(e.Left).Cmp(r.data(e.Right))
	switch e.Op {
	case bmv2json.OpEq:
		return c == 0
	case bmv2json.OpNe:
		return c != 0
	case bmv2json.OpLt:
		return c < 0
	case bmv2json.OpLe:
		return c <= 0
	case bmv2json.OpGt:
		return c > 0
	default:
		return c >= 0
	}
}

// fromBits returns the number that the lowest width bits represent.
func fromBits(v *big.Int, width int, signed bool) *big.Int {
	if signed && v.Bit(width-1) == 1 {
		return new(big.Int).Sub(v, pow2(width))
	}
	return v
}

func show(e *bmv2json.Expr) string {
	switch {
	case e == nil:
		return "-"
	case e.Op == bmv2json.OpConst:
		return e.Const.Text(16)
	case e.Op == bmv2json.OpField:
		return fmt.Sprintf("%s:%d", e.Field.Field.Name, e.Width)
	case e.Op == bmv2json.OpBool:
		return fmt.Sprint(e.Bool)
	case e.Op == bmv2json.OpTernary:
		return fmt.Sprintf("(%s ? %s : %s)", show(e.Cond), show(e.Left), show(e.Right))
	}
	return fmt.Sprintf("(%s %s %s)", show(e.Left), e.Op, show(e.Right))
}

func TestExpressionsAgainstBigIntegers(t *testing.T) {
	widths := []int{1, 3, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, -2, -8, -13, -32,
		-63, -64, -65, -128}
	prog := testutil.FieldsProgram(t, widths)
	r := rand.New(rand.NewPCG(1, 2))
	m := &exprMaker{r, prog.Header("m")}
	n, compiled, refused := 60000, 0, 0
	if testing.Short() {
		n = 5000
	}
	for range n {
		e, b, dst := m.data(1+r.IntN(4)), m.boolean(r.IntN(3)), m.field()
		lay, store, cond := compileForTest(t, prog, dst, e, b)
		if lay == nil {
			refused++
			continue
		}
		compiled++
		st := packet.NewState(lay)
		for range 3 {
			st.Clear()
			ref := reference{map[*bmv2json.Field]*big.Int{}}
			for _, f := range m.header.Type.Fields {
				v := testutil.RandomBits(r, f.Width)
				ref.fields[f] = fromBits(v, f.Width, f.Signed)
				at := lay.LaneOf(bmv2json.FieldRef{Header: m.header, Field: f})
				wideint.SetBig(st.Lanes[at:at+wideint.Lanes(f.Width)], v)
			}
			if got, want := cond(st), ref.boolean(b); got != want {
				t.Fatalf("%s is %t, want %t", show(b), got, want)
			}
			want := new(big.Int).And(ref.data(e), new(big.Int).Sub(pow2(dst.Width), one))
			store(st)
			at := lay.LaneOf(dst.Field)
			if got := wideint.Big(st.Lanes[at : at+wideint.Lanes(dst.Width)]); got.Cmp(want) != 0 {
				t.Fatalf("%s:%d = %s is %s, want %s\nfields %v", dst.Field, dst.Width, show(e),
					got.Text(16), want.Text(16), ref.fields)
			}
		}
	}
	t.Logf("%d expressions compiled, %d refused", compiled, refused)
	if compiled < n/2 {
		t.Errorf("only %d of %d expressions could be compiled", compiled, n)
	}
}

// compileForTest compiles an assignment and a condition. It returns nil if the compiler refuses
// them.
func compileForTest(t *testing.T, prog *bmv2json.Program, dst, e, b *bmv2json.Expr) (lay *packet.Layout,
	store Statement, cond Condition) {
	t.Helper()
	var err error
	func() {
		defer refusal.Recover(&err)
		lay = packet.NewLayout(prog)
		c := New(prog, lay, nil)
		store, cond = c.Assign(dst, e), c.Condition(b)
	}()
	if err != nil {
		return nil, nil, nil
	}
	return lay, store, cond
}
