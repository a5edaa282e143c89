package locking

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
)

// Stripes. With one lock for all registers, all CPUs that write run like one. But a packet's
// operations are one step for others as long as nobody else has the cells that it touches, and the
// numbers by which it takes them are mostly known before it touches the first one: a slot, a
// session. So registers that a packet takes by one number form a family
// (memory/register_families.go). Each family has a table of locks with versions, its stripes. In a
// program that is made by its paths a packet takes the stripe of its number in each family that it
// needs (paths/needs.go), before it touches any register:
//
//	session 7 ──▶ stripe 7 of the sessions ──▶ the last request, and its version
//	slot 4001 ──▶ stripe 4001 mod 64 of the slots ──▶ versions, writer, values 5 × 4001 … + 4
//
// Families have an order, and a packet takes one stripe of each at most, so there is no deadlock. A
// packet with a number that is too large to have cells takes all stripes, and so does a packet
// whose numbers are not known beforehand.
//
// A register that is alone in its family, and of one word, may have a number that many packets have
// in common: when a chain's lease ends. One such family is single (findSingle there). A packet that
// only reads one cell of it takes no stripe for it: that one load is the moment at which the whole
// packet takes effect, since it has the stripes of all the rest before and after. A packet that
// writes such a cell has its stripe, for those that read without any (unlocked.go), and reads none
// of them without: otherwise that would be two moments.
//
// Stripes cost a packet some 8 ns, which is for nothing where packets do not meet. So there
// are modes: with the one lock, until packets have waited for it; then with stripes. On the way
// from one to the other all packets take all, and a change waits until no packet is left of the
// mode before (runtime.Pipeline.SetStripes). Programs that know no stripes, since they were not
// made by their paths, take the one lock whatever the mode, so they only run in the first.

// In the PHV, PHVLocked says which locks a packet has.
const (
	hasNothing = 0
	hasLock    = 1
	hasStripes = 2 // those whose words in the PHV are not 0
	hasAll     = 3
)

// Striped reports whether the program has stripes at all.
func (t *Locks) Striped() bool { return t.Versioned() && len(t.Families) > 0 && t.ByPaths }

// findStripe puts where a number's stripe is in its family into R1, and into the PHV; a number
// without cells goes to beyond.
func (t *Locks) findStripe(f int, base *bmv2json.Expr, beyond string) {
	v := t.Index(base)
	if k, ok := v.Constant(); ok {
		t.Emit(asm.Mov.Imm(asm.R1, int32(k)&int32(t.StripeCount-1)*memory.StripeBytes))
	} else {
		t.Compute(v, 0)
		if v.Max >= t.Families[f].Bound {
			t.Emit(asm.JGE.Imm(asm.R1, int32(t.Families[f].Bound), beyond))
		}
		t.Emit(asm.And.Imm(asm.R1, int32(t.StripeCount-1)),
			asm.LSh.Imm(asm.R1, int32(emit.Log2(memory.StripeBytes))))
	}
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Or.Imm(asm.R2, 1))
	t.Store(code.PHV, t.HeldStripe(f), asm.R2, 8)
}

// stripeAddress puts the address of the stripe that the PHV has of a family into R1; one that it
// has not goes to none, if there may be none.
func (t *Locks) stripeAddress(phv asm.Register, f int, none string) {
	t.Load(asm.R2, phv, t.HeldStripe(f), 8)
	if none != "" {
		t.Emit(asm.JEq.Imm(asm.R2, 0, none))
	}
	t.StateAddress(asm.R1, t.Families[f].Stripes)
	t.Emit(asm.And.Imm(asm.R2, t.StripeMask()), asm.Add.Reg(asm.R1, asm.R2))
}

// LockInside takes the locks of a packet that continues with a step inside.
func (t *Locks) LockInside(to *paths.Step) {
	if !t.Striped() {
		t.LockRegisters()
		return
	}
	stripes, got := t.NewLabel("stripes"), t.NewLabel("inside")
	t.StateAddress(asm.R1, t.Mode)
	t.Load(asm.R2, asm.R1, 0, 8)
	t.Emit(asm.JNE.Imm(asm.R2, memory.ModeOne, stripes))
	t.LockRegisters()
	t.Bind(got)
	t.EmitLater(func() {
		t.Bind(stripes)
		t.lockStripes(to)
		t.Jump(got)
	})
}

// lockStripes takes a packet's stripes; the mode is in R2. What is the same for all packets is in
// functions: there are many places where packets get registers, and a jump must reach past them.
func (t *Locks) lockStripes(to *paths.Step) {
	all, taken := t.NewLabel("all"), t.NewLabel("taken")
	if list, known := to.Needs.FamiliesToLock(); known {
		t.Emit(asm.JNE.Imm(asm.R2, memory.ModeStripes, all))
		t.Facts, t.Params, t.Constants = to.Facts, nil, nil
		for f := range t.Families {
			if !slices.Contains(list, f) {
				t.StoreConstant(code.PHV, t.HeldStripe(f), 0, 8)
			}
		}
		for _, f := range list {
			t.findStripe(f, to.Needs.Families[f].Base, all)
		}
		t.callWithPHV(t.lockStripesFunction())
		t.Jump(taken)
	}
	t.Bind(all)
	t.callWithPHV(t.lockAllFunction())
	t.Bind(taken)
	t.Emit(asm.JEq.Imm(asm.R0, 0, "ingress.drop"))
}

// callWithPHV calls a function of this file.
func (t *Locks) callWithPHV(name string) {
	t.Emit(asm.Mov.Reg(asm.R1, code.PHV), asm.Mov.Imm(asm.R2, 0))
	t.CallFunction(name)
}

// lockStripesFunction is the function that takes the stripes of a packet's PHV, which is R1, and
// returns 1; or none, and 0, where that takes too long, or the packet's epoch is over.
func (t *Locks) lockStripesFunction() string {
	wait, give := t.waitForStripeFunction(), t.giveBackFunction()
	return t.FunctionOnce("stripes.lock", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.StoreConstant(asm.R6, memory.PHVLocked, hasStripes, 1)
		for f := range t.Families {
			got, taken, none := t.NewLabel("got"), t.NewLabel("taken"), t.NewLabel("none")
			t.stripeAddress(asm.R6, f, none)
			t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
				code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JNE.Imm(asm.R0, 0, taken))
			t.Bind(got)
			t.TurnVersion(asm.R1)
			t.Bind(none)
			t.EmitLater(func() {
				t.Bind(taken)
				t.Load(asm.R1, asm.R6, t.HeldStripe(f), 8)
				t.Emit(asm.Add.Imm(asm.R1, int32(t.Families[f].Stripes-t.Stripes)),
					asm.Mov.Imm(asm.R2, 0))
				t.CallFunction(wait)
				t.stripeAddress(asm.R6, f, "")
				t.Emit(asm.JNE.Imm(asm.R0, 0, got))
				for g := f; g < len(t.Families); g++ {
					t.StoreConstant(asm.R6, t.HeldStripe(g), 0, 8)
				}
				t.Jump("stripes.failed")
			})
		}
		t.checkEpoch(asm.R6)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.FlushLater()
		t.Bind("stripes.failed")
		t.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction(give)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// checkEpoch goes to stripes.failed where a packet's epoch is over.
func (t *Locks) checkEpoch(phv asm.Register) {
	current := t.NewLabel("current")
	t.StateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, memory.OldestEpoch, 8)
	t.Load(asm.R3, phv, memory.PHVEpoch, 8)
	t.Emit(asm.JLE.Reg(asm.R2, asm.R3, current), asm.Mov.Imm(asm.R2, 1),
		code.Atomic(asm.AddAtomic, asm.R1, asm.R2, memory.EpochDropped))
	t.Jump("stripes.failed")
	t.Bind(current)
}

// UnlockInside releases the locks of a packet that has been inside.
func (t *Locks) UnlockInside() {
	if !t.Striped() {
		t.UnlockRegisters()
		return
	}
	stripes, free := t.NewLabel("stripes"), t.NewLabel("outside")
	t.Load(asm.R1, code.PHV, memory.PHVLocked, 1)
	t.Emit(asm.JNE.Imm(asm.R1, hasLock, stripes))
	t.UnlockRegisters()
	t.Bind(free)
	t.EmitLater(func() {
		t.Bind(stripes)
		t.callWithPHV(t.giveBackFunction())
		t.Jump(free)
	})
}

// giveBackStripes gives those back that the PHV has.
func (t *Locks) giveBackStripes(phv asm.Register) {
	for f := range t.Families {
		none := t.NewLabel("none")
		t.stripeAddress(phv, f, none)
		t.TurnVersion(asm.R1)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Bind(none)
	}
}

// waitForStripeFunction is the function that waits for the stripe that is R1 after the first one:
// it returns 1 when it has it, and 0 when that has taken too long.
func (t *Locks) waitForStripeFunction() string {
	t.FunctionOnce("stripe.wait", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.Load(asm.R2, asm.R6, 8, 8)
		t.Emit(asm.And.Imm(asm.R2, ^int32(memory.StripeBytes-1)),
			asm.JGE.Imm(asm.R2, int32(t.StripesBytes()), "stripe.beyond"))
		t.StateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R2), asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
			code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, "stripe.got"),
			asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("stripe.got")
		t.StoreConstant(asm.R6, 0, 1, 8)
		t.Bind("stripe.beyond")
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	return t.FunctionOnce("stripe.free", func() {
		t.Store(asm.R10, -8, asm.R1, 8)
		t.StoreConstant(asm.R10, -16, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R1, lockTries))
		t.LoadFunction(asm.R2, "stripe.wait")
		t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.Load(asm.R0, asm.R10, -16, 8)
		t.Emit(asm.Return())
	})
}

// TakeStripesFunction is the function that takes all stripes for the holder of the one lock, one
// after the other, and returns 1; or none, and 0, if that has taken too long.
func (t *Locks) TakeStripesFunction() string {
	t.GiveStripesFunction()
	t.FunctionOnce("stripes.each", func() { // which one is next is in the state, guarded by the one lock
		t.StateAddress(asm.R6, t.Taking)
		t.Load(asm.R7, asm.R6, 0, 8)
		t.Emit(asm.And.Imm(asm.R7, ^int32(memory.StripeBytes-1)),
			asm.JGE.Imm(asm.R7, int32(t.StripesBytes()), "stripes.end"))
		t.StateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
			code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JNE.Imm(asm.R0, 0, "stripes.busy"))
		t.TurnVersion(asm.R1)
		t.Emit(asm.Add.Imm(asm.R7, memory.StripeBytes))
		t.Store(asm.R6, 0, asm.R7, 8)
		t.Emit(asm.JGE.Imm(asm.R7, int32(t.StripesBytes()), "stripes.end"))
		t.Bind("stripes.busy")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("stripes.end")
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	return t.FunctionOnce("stripes.take", func() {
		t.StateAddress(asm.R1, t.Taking)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R1, lockTries))
		t.LoadFunction(asm.R2, "stripes.each")
		t.Emit(asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.StateAddress(asm.R1, t.Taking)
		t.Load(asm.R1, asm.R1, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1),
			asm.JGE.Imm(asm.R1, int32(t.StripesBytes()), "stripes.taken"),
			asm.RSh.Imm(asm.R1, int32(emit.Log2(memory.StripeBytes))))
		t.Emit(asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.give")
		t.Emit(asm.Mov.Imm(asm.R0, 0))
		t.Bind("stripes.taken")
		t.Emit(asm.Return())
	})
}

// GiveStripesFunction is the function that gives the first R1 stripes back.
func (t *Locks) GiveStripesFunction() string {
	t.FunctionOnce("stripes.back", func() { // R1 is which one
		t.Emit(asm.JGE.Imm(asm.R1, int32(len(t.Families)*t.StripeCount), "stripes.none"),
			asm.LSh.Imm(asm.R1, int32(emit.Log2(memory.StripeBytes))), asm.Mov.Reg(asm.R3, asm.R1))
		t.StateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R3))
		t.TurnVersion(asm.R1)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Bind("stripes.none")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
	return t.FunctionOnce("stripes.give", func() {
		t.LoadFunction(asm.R2, "stripes.back")
		t.Emit(asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// lockAllFunction is the function that takes the one lock and all stripes for the packet whose PHV
// is R1, and returns 1; or none, and 0.
func (t *Locks) lockAllFunction() string {
	t.TakeStripesFunction()
	t.giveBackFunction()
	return t.FunctionOnce("registers.all", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.Acquire(t.Lock, "registers.busy")
		t.StateAddress(asm.R1, t.Lock)
		t.TurnVersion(asm.R1)
		t.Emit(asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.take")
		t.Emit(asm.JEq.Imm(asm.R0, 0, "registers.back"))
		t.StoreConstant(asm.R6, memory.PHVLocked, hasAll, 1)
		t.checkEpoch(asm.R6)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.Bind("stripes.failed")
		t.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("registers.give")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("registers.back")
		t.StateAddress(asm.R1, t.Lock)
		t.TurnVersion(asm.R1)
		t.Release(t.Lock)
		t.Bind("registers.busy")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// giveBackFunction is the function that gives back what the packet has whose PHV is R1, except for
// the one lock alone.
func (t *Locks) giveBackFunction() string {
	t.GiveStripesFunction()
	return t.FunctionOnce("registers.give", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.Load(asm.R1, asm.R6, memory.PHVLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, hasAll, "registers.each"))
		t.giveBackStripes(asm.R6)
		t.Jump("registers.given")
		t.Bind("registers.each")
		t.Emit(asm.Mov.Imm(asm.R1, int32(len(t.Families)*t.StripeCount)), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.give")
		t.StateAddress(asm.R1, t.Lock)
		t.TurnVersion(asm.R1)
		t.Release(t.Lock)
		t.Bind("registers.given")
		t.StoreConstant(asm.R6, memory.PHVLocked, hasNothing, 1)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}
