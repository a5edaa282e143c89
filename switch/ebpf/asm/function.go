package asm

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Registers with the same meaning throughout a function. Calls clobber R0 to R5, which therefore
// hold values only within one node of the control flow. So wherever paths meet, the verifier finds
// the same state in every register that is still read, and need not follow each path to its end.
const (
	PHV   = asm.R6 // the packet's fields, a value in the per-CPU map "phv"
	Ctx   = asm.R7 // pointer to struct __sk_buff or struct xdp_md
	Entry = asm.R8 // a table entry's word or slot; the parser uses it as the cursor
	Temp  = asm.R9 // the parser uses it for the number of bytes that may be parsed
)

// Function is one BPF function that is being written.
type Function struct {
	Name   string
	ins    []asm.Instruction
	labels map[string]int // label -> position in ins, for bound labels
	fresh  int
	Where  string // path in the JSON of the construct that is being translated, for error messages
}

// New starts a function. Other functions of the program call it by its name, which is a label.
func New(name string) *Function {
	return &Function{Name: name, labels: map[string]int{}}
}

// Emit appends instructions. Their jumps go to labels.
func (c *Function) Emit(ins ...asm.Instruction) { c.ins = append(c.ins, ins...) }

// NewLabel returns a new label that is not bound yet.
func (c *Function) NewLabel(hint string) string {
	c.fresh++
	return fmt.Sprintf("%s.%s.%d", c.Name, hint, c.fresh)
}

// Bind binds a label to the next instruction. It panics if the label is already bound.
func (c *Function) Bind(label string) {
	if _, twice := c.labels[label]; twice {
		panic("label bound twice: " + label)
	}
	c.labels[label] = len(c.ins)
}

// Jump emits a jump to a label.
func (c *Function) Jump(label string) { c.Emit(asm.Ja.Label(label)) }

// LoadConstant emits instructions that load a 64-bit constant.
func (c *Function) LoadConstant(dst asm.Register, v uint64) {
	switch {
	case v <= math.MaxInt32 || v >= uint64(math.MaxUint64+math.MinInt32+1):
		c.Emit(asm.Mov.Imm(dst, int32(v)))
	case v <= math.MaxUint32:
		c.Emit(asm.Mov.Imm32(dst, int32(uint32(v))))
	default:
		c.Emit(asm.LoadImm(dst, int64(v), asm.DWord))
	}
}

// Call emits a call of a kernel helper. The helper takes its arguments from R1 to R5, returns its
// result in R0, and clobbers R1 to R5.
func (c *Function) Call(fn asm.BuiltinFunc) { c.Emit(fn.Call()) }

// CallFunction emits a call of another function of the program. The arguments are in R1 and R2.
func (c *Function) CallFunction(name string) {
	// The verifier counts all of R1 to R5 as arguments, so leftover values would make identical
	// paths look different.
	c.Emit(asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0), asm.Mov.Imm(asm.R5, 0))
	c.Emit(asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call),
		Src: asm.PseudoCall, Constant: -1}.WithReference(name))
}

// LoadFunction emits an instruction that loads the address of another function of the program.
func (c *Function) LoadFunction(dst asm.Register, name string) {
	c.Emit(asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: dst, Src: asm.PseudoFunc,
		Constant: -1}.WithReference(name))
}

func isJump(in asm.Instruction) bool {
	cl := in.OpCode.Class()
	return cl.IsJump() && in.OpCode.JumpOp() != asm.Call && in.OpCode.JumpOp() != asm.Exit
}

// isAlways reports whether an instruction is an unconditional jump.
func isAlways(in asm.Instruction) bool { return isJump(in) && in.OpCode.JumpOp() == asm.Ja }

// target returns the index of the instruction at which the jump at index i arrives. It follows
// jumps to jumps.
func (c *Function) target(i int) (int, error) {
	ref := c.ins[i].Reference()
	at, ok := c.labels[ref]
	if !ok {
		return 0, fmt.Errorf("%s: label %q is nowhere", c.Name, ref)
	}
	for at < len(c.ins) && isAlways(c.ins[at]) {
		next, ok := c.labels[c.ins[at].Reference()]
		if !ok || next <= at {
			break
		}
		at = next
	}
	return at, nil
}

// reach finds the instructions that can be reached from the function's beginning, and the targets
// of jumps.
func (c *Function) reach() (reached []bool, to []int, err error) {
	n := len(c.ins)
	reached, to = make([]bool, n+1), make([]int, n)
	for work := []int{0}; len(work) > 0; {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if reached[i] {
			continue
		}
		reached[i] = true
		if i == n {
			return nil, nil, fmt.Errorf("%s: runs off its end", c.Name)
		}
		in := c.ins[i]
		if isJump(in) {
			if to[i], err = c.target(i); err != nil {
				return nil, nil, err
			}
			work = append(work, to[i])
		}
		if !isAlways(in) && !(in.OpCode.Class().IsJump() && in.OpCode.JumpOp() == asm.Exit) {
			work = append(work, i+1)
		}
	}
	return reached, to, nil
}

// Assemble returns the function's instructions with their labels. It drops unreachable code, which
// the verifier would refuse, and jumps to the next instruction. main is true for the program's
// entry, whose type the kernel knows. All other functions are static.
func (c *Function) Assemble(main bool) (asm.Instructions, error) {
	keep, to, err := c.reach()
	if err != nil {
		return nil, err
	}
	n := len(c.ins)
	for i, next := n-1, n; i >= 0; i-- {
		if isAlways(c.ins[i]) && to[i] > i && firstKept(keep[:n], to[i]) == next {
			keep[i] = false
		}
		if keep[i] {
			next = i
		}
	}
	targets := map[int]string{}
	for i := range n {
		if keep[i] && isJump(c.ins[i]) {
			to[i] = firstKept(keep[:n], to[i])
			targets[to[i]] = fmt.Sprintf("%s+%d", c.Name, to[i])
		}
	}
	var out asm.Instructions
	for i, in := range c.ins {
		if !keep[i] {
			continue
		}
		if isJump(in) {
			in = in.WithReference(targets[to[i]])
		}
		if l, ok := targets[i]; ok {
			if len(out) == 0 { // The symbol of the first instruction is the function's name.
				return nil, fmt.Errorf("%s: jumps to its own entry (%s)", c.Name, l)
			}
			in = in.WithSymbol(l)
		}
		out = append(out, in)
	}
	out[0] = btf.WithFuncMetadata(out[0].WithSymbol(c.Name), c.btf(main))
	return out, nil
}

// btf returns the function's type in BTF.
func (c *Function) btf(main bool) *btf.Func {
	void := &btf.Pointer{Target: &btf.Void{}}
	linkage, params := btf.GlobalFunc, []btf.FuncParam{{Name: "ctx", Type: void}}
	if !main {
		word := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
		linkage, params = btf.StaticFunc, []btf.FuncParam{{Name: "a", Type: word},
			{Name: "b", Type: void}}
	}
	result := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	return &btf.Func{Name: c.Name, Linkage: linkage,
		Type: &btf.FuncProto{Return: result, Params: params}}
}

// Link combines functions into one program. The first function is the program's entry. Link omits
// functions that nothing calls. If only unreachable code calls a function, the kernel does not
// recognize it as a function and refuses its metadata.
func Link(functions []*Function) (asm.Instructions, error) {
	parts, at := make([]asm.Instructions, len(functions)), map[string]int{}
	for i, c := range functions {
		at[c.Name] = i
	}
	called := make([]bool, len(functions))
	called[0] = true
	for work := []int{0}; len(work) > 0; {
		i := work[0]
		work = work[1:]
		var err error
		if parts[i], err = functions[i].Assemble(i == 0); err != nil {
			return nil, err
		}
		for _, in := range parts[i] {
			// The target of a jump is in the jump's own function and has no name.
			if f, ok := at[in.Reference()]; ok && !called[f] {
				called[f], work = true, append(work, f)
			}
		}
	}
	return slices.Concat(parts...), nil
}

// Inline inserts a function that clang has compiled. The function takes the context from R1, its
// other arguments from R2 to R5, and leaves its result in R0. Ctx is the only other register that
// keeps its value. Inline saves Ctx on the stack just below base, and the function's own stack
// begins below that.
func (c *Function) Inline(ins asm.Instructions, base int16) {
	done, targets := c.NewLabel("inlined"), map[int]string{}
	for i, in := range ins {
		if in.OpCode.IsDWordLoad() {
			panic("a constant of 64 bits would count twice in the distance of a jump")
		}
		if to := i + 1 + int(in.Offset); isJump(in) && targets[to] == "" {
			targets[to] = c.NewLabel("to")
		}
	}
	c.Store(asm.R10, int(base)-8, Ctx, 8)
	base -= 8
	for i, in := range ins {
		if l, ok := targets[i]; ok {
			c.Bind(l)
		}
		class := in.OpCode.Class()
		switch {
		case isJump(in):
			in = in.WithReference(targets[i+1+int(in.Offset)])
			in.Offset = -1 // the offset is filled in later
		case class.IsJump() && in.OpCode.JumpOp() == asm.Exit:
			in = asm.Ja.Label(done)
		case class.IsLoad() && in.Src == asm.R10, class.IsStore() && in.Dst == asm.R10:
			in.Offset += base
		}
		c.Emit(in)
		if class.IsALU() && in.OpCode.ALUOp() == asm.Mov && in.Src == asm.R10 {
			c.Emit(asm.Add.Imm(in.Dst, int32(base)))
		}
	}
	c.Bind(done)
	c.Load(Ctx, asm.R10, int(base), 8)
}

func firstKept(keep []bool, i int) int {
	for i < len(keep) && !keep[i] {
		i++
	}
	return i
}

// Load and Store emit instructions that move a number between a register and memory. size is 1, 2,
// 4 or 8 bytes.
func (c *Function) Load(dst, base asm.Register, off, size int) {
	c.Emit(asm.LoadMem(dst, base, int16(off), SizeOf(size)))
}

func (c *Function) Store(base asm.Register, off int, src asm.Register, size int) {
	c.Emit(asm.StoreMem(base, int16(off), src, SizeOf(size)))
}

// StoreConstant emits an instruction that stores a constant. It sign-extends the constant if size
// is 8 bytes.
func (c *Function) StoreConstant(base asm.Register, off int, v int32, size int) {
	// asm.StoreImm does not support double words, although the instruction does. The instruction
	// sign-extends its constant.
	c.Emit(asm.Instruction{OpCode: asm.StoreImmOp(SizeOf(size)), Dst: base, Offset: int16(off),
		Constant: int64(v)})
}

// SizeOf returns the instruction size for an access of 1, 2, 4 or 8 bytes.
func SizeOf(bytes int) asm.Size {
	switch bytes {
	case 1:
		return asm.Byte
	case 2:
		return asm.Half
	case 4:
		return asm.Word
	}
	return asm.DWord
}

// CopyWords emits instructions that copy bytes from src+from to dst+to through R4 and R5. The
// number of bytes is a multiple of 8.
func (c *Function) CopyWords(dst asm.Register, to int, src asm.Register, from, bytes int) {
	via := [2]asm.Register{asm.R4, asm.R5}
	for i := 0; i < bytes; i += 16 {
		for j := 0; j < 16 && i+j < bytes; j += 8 {
			c.Load(via[j/8], src, from+i+j, 8)
		}
		for j := 0; j < 16 && i+j < bytes; j += 8 {
			c.Store(dst, to+i+j, via[j/8], 8)
		}
	}
}

// Zero emits instructions that clear bytes of memory at base+off. Both ends must be aligned for the
// stores.
func (c *Function) Zero(base asm.Register, off, bytes int) {
	for bytes > 0 {
		size := 8
		for size > bytes || off%size != 0 {
			size /= 2
		}
		c.StoreConstant(base, off, 0, size)
		off, bytes = off+size, bytes-size
	}
}

// Atomic returns an atomic operation on the 64-bit word at base+off. It also sets the instruction's
// constant to the operation's code, because cilium/ebpf v0.22.0 encodes the constant. Without it,
// that version would turn Xchg and CmpXchg into plain additions. With other versions the result is
// the same.
func Atomic(op asm.AtomicOp, base, src asm.Register, off int) asm.Instruction {
	in := op.Mem(base, src, asm.DWord, int16(off))
	in.Constant = int64(op >> 8)
	return in
}
