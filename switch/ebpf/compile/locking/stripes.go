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

// Stripes. With one lock for all registers, only one CPU at a time can write. But a packet's
// operations are already atomic if no other packet uses the cells that it touches. The numbers that
// select these cells (a slot, a session) are mostly known before the packet touches the first one.
// So registers that a packet selects by the same number form a family
// (memory/register_families.go). Each family has a table of locks with versions, its stripes. In a
// program that is compiled path by path, a packet takes the stripe of its number in each family
// that it needs (paths/needs.go), before it touches any register:
//
//	session 7 ──▶ stripe 7 of the sessions ──▶ the last request, and its version
//	slot 4001 ──▶ stripe 4001 mod 64 of the slots ──▶ versions, writer, values 5 × 4001 … + 4
//
// Families are ordered, and a packet takes at most one stripe of each, so there is no deadlock. A
// packet with a number that is too large to have cells takes all stripes, and so does a packet
// whose numbers are not known beforehand.
//
// A one-word register that is alone in its family may be selected by a number that many packets
// share; for example, the register that says when a chain's lease ends. One such family is called
// single (findSingle there). A packet that only reads one cell of it takes no stripe for it: that
// one load is the moment at which the whole packet takes effect, because it holds all its other
// stripes before and after the load. A packet that writes such a cell takes its stripe, so that
// readers without locks (unlocked.go) notice the write, and it reads no such cell without the
// stripe. Otherwise it would take effect at two different moments.
//
// Stripes cost a packet some 8 ns, which is wasted if packets do not contend. So there are modes: a
// program starts with the global lock, and changes to stripes after packets have waited for it. In
// between there is a mode in which all packets take the lock and all stripes; each change of mode
// waits until no packet of the previous mode is left (runtime.Pipeline.SetStripes). Programs
// without stripes (those not compiled path by path) take the global lock in every mode, so they run
// only in the first.

// PHVLocked in the PHV says which locks a packet holds.
const (
	hasNothing = 0
	hasLock    = 1
	hasStripes = 2 // the packet holds the stripes whose words in the PHV are not 0
	hasAll     = 3
)

// Striped reports whether the program has stripes at all.
func (t *Locks) Striped() bool { return t.Versioned() && len(t.Families) > 0 && t.ByPaths }

// findStripe emits code that stores the offset of a number's stripe within its register family in
// R1 and in the PHV. If the number is too large to have cells, the code jumps to beyond.
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

// stripeAddress emits code that loads the address of the packet's stripe of a register family into
// R1. The PHV contains the stripe's offset. If none is not "", the code jumps to none when the
// packet has no stripe.
func (t *Locks) stripeAddress(phv asm.Register, f int, none string) {
	t.Load(asm.R2, phv, t.HeldStripe(f), 8)
	if none != "" {
		t.Emit(asm.JEq.Imm(asm.R2, 0, none))
	}
	t.StateAddress(asm.R1, t.Families[f].Stripes)
	t.Emit(asm.And.Imm(asm.R2, t.StripeMask()), asm.Add.Reg(asm.R1, asm.R2))
}

// LockInside emits code that takes the locks of a packet that enters the locked section with the
// step to.
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

// lockStripes emits code that takes a packet's stripes. The mode is in R2. The common code is in
// functions, because packets lock registers in many places and jumps have a limited reach.
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

// callWithPHV emits a call of one of the functions in this file, with the PHV as its argument.
func (t *Locks) callWithPHV(name string) {
	t.Emit(asm.Mov.Reg(asm.R1, code.PHV), asm.Mov.Imm(asm.R2, 0))
	t.CallFunction(name)
}

// lockStripesFunction emits the function that takes the stripes that the PHV at R1 lists. The
// function returns 1. If it takes too long, or if the packet's epoch has ended, it takes no stripe
// and returns 0.
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

// checkEpoch emits code that jumps to stripes.failed if the packet's epoch has ended.
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

// UnlockInside emits code that releases the locks of a packet that leaves the locked section.
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

// giveBackStripes emits code that releases the stripes that the PHV lists.
func (t *Locks) giveBackStripes(phv asm.Register) {
	for f := range t.Families {
		none := t.NewLabel("none")
		t.stripeAddress(phv, f, none)
		t.TurnVersion(asm.R1)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Bind(none)
	}
}

// waitForStripeFunction emits the function that waits for the stripe at offset R1 from the first
// stripe. The function returns 1 when it has taken the stripe, and 0 after too many tries.
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

// TakeStripesFunction emits the function that takes all stripes, one after the other, for the
// holder of the global lock. The function returns 1. If that takes too long, it takes no stripe and
// returns 0.
func (t *Locks) TakeStripesFunction() string {
	t.GiveStripesFunction()
	// The state contains the next stripe's number. The global lock guards it.
	t.FunctionOnce("stripes.each", func() {
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

// GiveStripesFunction emits the function that releases the first R1 stripes.
func (t *Locks) GiveStripesFunction() string {
	t.FunctionOnce("stripes.back", func() { // R1 is the number of the stripe to release.
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

// lockAllFunction emits the function that takes the global lock and all stripes for the packet
// whose PHV is at R1. The function returns 1. If it fails, it takes no lock and returns 0.
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

// giveBackFunction emits the function that releases the locks of the packet whose PHV is at R1. It
// does not handle a packet that holds only the global lock.
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
