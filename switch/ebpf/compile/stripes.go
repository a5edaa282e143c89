package compile

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Stripes. One lock for all registers makes one CPU of all that write. But what a packet does is
// one step for others as long as nobody else has the cells that it touches, and by which numbers it
// will take them is mostly known before it touches the first one: a slot, a session. So registers
// that a packet takes by one number make a family (families.go), each family has a table of locks
// with versions, its stripes, and in a program that is made by its paths a packet takes the stripe
// of its number in each family that it needs (needs.go), before it touches any register:
//
//	session 7 ──▶ stripe 7 of the sessions ──▶ the last request, and its version
//	slot 4001 ──▶ stripe 4001 mod 64 of the slots ──▶ versions, writer, values 5 × 4001 … + 4
//
// Families come in one order, and a packet takes one stripe of each at most, so none waits for one
// that waits for it. A number that is too large to have cells takes all stripes, and so does a
// packet whose numbers are not known: what its index then is, nobody can tell before.
//
// A register that is alone in its family, and of one word, may be of a number that many packets
// have in common: when a chain's lease ends. One such family is single (findSingle). A packet that
// only reads one cell of it takes no stripe for it: that one load is the moment at which all that
// the packet does happens, since it has the stripes of all the rest before and after. Whoever
// writes such a cell has its stripe, for those that read without any (unlocked.go), and reads none
// of them without: else that would be two moments.
//
// Stripes cost a packet some 8 ns, which is for nothing where packets do not meet. So there
// are modes: with the one lock, until packets have waited for it; then with stripes. On the way
// from one to the other all packets take all, and a change waits until no packet is left of the
// mode before (runtime.Pipeline.SetStripes). Programs that know no stripes, since they were not
// made by their paths, take the one lock whatever the mode, so they only run in the first.
const (
	ModeOne     = 0 // the one lock
	ModeStripes = 1 // stripes
	ModeBoth    = 2 // the one lock, and then all stripes
)

// In the PHV, phvLocked says what a packet has.
const (
	hasNothing = 0
	hasLock    = 1
	hasStripes = 2 // those whose words in the PHV are not 0
	hasAll     = 3
)

// stripeMask is which bits of a stripe's offset in its family count; bit 0 says that there is one.
func (p *Plan) stripeMask() int32 { return int32((p.stripes - 1) * stripeBytes) }

// heldStripe and heldVersion are where the PHV has what a packet has of a family.
func (p *Plan) heldStripe(family int) int  { return p.held + 16*family }
func (p *Plan) heldVersion(family int) int { return p.held + 16*family + 8 }

// Locks are where in the state the locks are that a packet may have: 0 in each that none has.
func (p *Plan) Locks() []int {
	locks := []int{p.Lock}
	for i := range len(p.families) * p.stripes {
		locks = append(locks, p.Stripes+i*stripeBytes)
	}
	return locks
}

// striped reports whether the program has stripes at all.
func (t *translator) striped() bool { return t.versioned() && len(t.families) > 0 && t.byPaths }

// familiesToLock are those of which a packet takes a stripe at a step; false where it takes all.
func (n *needs) familiesToLock() (list []int, ok bool) {
	if n == nil || n.unknown {
		return nil, false
	}
	others := false
	for _, need := range n.of {
		others = others || need.base != nil && !need.single
	}
	for f, need := range n.of {
		if need.base == nil ||
			need.single && others && n.singleReads <= 1 && !n.singleWrites {
			continue
		}
		if need.several {
			return nil, false
		}
		list = append(list, f)
	}
	return list, true
}

// familiesToRead are those whose versions tell a packet that only reads whether it has read what is
// so; false where it cannot know.
func (n *needs) familiesToRead() (list []int, ok bool) {
	if n == nil || n.unknown {
		return nil, false
	}
	for f, need := range n.of {
		if need.several {
			return nil, false
		}
		if need.base != nil {
			list = append(list, f)
		}
	}
	return list, true
}

// stripesFit reports whether packets seldom take all stripes: where each has them all, one lock
// does better.
func stripesFit(order []*step) bool {
	for _, s := range order {
		for _, n := range s.next {
			if s.inside || !n.inside {
				continue
			}
			if _, ok := n.needs.familiesToLock(); !ok {
				return false
			}
		}
	}
	return true
}

// afterwards keeps a part of a function's code for its end.
func (t *translator) afterwards(emit func()) { t.later = append(t.later, emit) }

// emitLater emits them. What they know of fields is of those packets alone that come to them: what
// is emitted behind must not know it, too.
func (t *translator) emitLater() {
	facts, params, constants := t.Facts, t.Params, t.Constants
	for len(t.later) > 0 {
		emit := t.later[0]
		t.later = t.later[1:]
		emit()
		t.Facts, t.Params, t.Constants = facts, params, constants
	}
}

// findStripe puts where a number's stripe is in its family into R1, and into the PHV; a number
// without cells goes to beyond.
func (t *translator) findStripe(f int, base *bmv2json.Expr, beyond string) {
	v := t.Index(base)
	if k, ok := v.Constant(); ok {
		t.Emit(asm.Mov.Imm(asm.R1, int32(k)&int32(t.stripes-1)*stripeBytes))
	} else {
		t.Compute(v, 0)
		if v.Max >= t.families[f].bound {
			t.Emit(asm.JGE.Imm(asm.R1, int32(t.families[f].bound), beyond))
		}
		t.Emit(asm.And.Imm(asm.R1, int32(t.stripes-1)),
			asm.LSh.Imm(asm.R1, int32(log2(stripeBytes))))
	}
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Or.Imm(asm.R2, 1))
	t.Store(code.PHV, t.heldStripe(f), asm.R2, 8)
}

// stripeAddress puts the address of the stripe that the PHV has of a family into R1; one that it
// has not goes to none, if there may be none.
func (t *translator) stripeAddress(phv asm.Register, f int, none string) {
	t.Load(asm.R2, phv, t.heldStripe(f), 8)
	if none != "" {
		t.Emit(asm.JEq.Imm(asm.R2, 0, none))
	}
	t.stateAddress(asm.R1, t.families[f].stripes)
	t.Emit(asm.And.Imm(asm.R2, t.stripeMask()), asm.Add.Reg(asm.R1, asm.R2))
}

// lockInside takes what a packet needs that goes on with a step inside.
func (t *translator) lockInside(to *step) {
	if !t.striped() {
		t.lockRegisters()
		return
	}
	stripes, got := t.NewLabel("stripes"), t.NewLabel("inside")
	t.stateAddress(asm.R1, t.Mode)
	t.Load(asm.R2, asm.R1, 0, 8)
	t.Emit(asm.JNE.Imm(asm.R2, ModeOne, stripes))
	t.lockRegisters()
	t.Bind(got)
	t.afterwards(func() {
		t.Bind(stripes)
		t.lockStripes(to)
		t.Jump(got)
	})
}

// lockStripes takes a packet's stripes; the mode is in R2. What is the same for all packets is in
// functions: there are many places where packets get registers, and a jump must reach past them.
func (t *translator) lockStripes(to *step) {
	all, taken := t.NewLabel("all"), t.NewLabel("taken")
	if list, known := to.needs.familiesToLock(); known {
		t.Emit(asm.JNE.Imm(asm.R2, ModeStripes, all))
		t.Facts, t.Params, t.Constants = to.facts, nil, nil
		for f := range t.families {
			if !slices.Contains(list, f) {
				t.StoreConstant(code.PHV, t.heldStripe(f), 0, 8)
			}
		}
		for _, f := range list {
			t.findStripe(f, to.needs.of[f].base, all)
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
func (t *translator) callWithPHV(name string) {
	t.Emit(asm.Mov.Reg(asm.R1, code.PHV), asm.Mov.Imm(asm.R2, 0))
	t.CallFunction(name)
}

// lockStripesFunction is the function that takes the stripes of a packet's PHV, which is R1, and
// returns 1; or none, and 0, where that takes too long, or the packet's epoch is over.
func (t *translator) lockStripesFunction() string {
	wait, give := t.waitForStripeFunction(), t.giveBackFunction()
	return t.once("stripes.lock", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.StoreConstant(asm.R6, phvLocked, hasStripes, 1)
		for f := range t.families {
			got, taken, none := t.NewLabel("got"), t.NewLabel("taken"), t.NewLabel("none")
			t.stripeAddress(asm.R6, f, none)
			t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
				code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JNE.Imm(asm.R0, 0, taken))
			t.Bind(got)
			t.turnVersion(asm.R1)
			t.Bind(none)
			t.afterwards(func() {
				t.Bind(taken)
				t.Load(asm.R1, asm.R6, t.heldStripe(f), 8)
				t.Emit(asm.Add.Imm(asm.R1, int32(t.families[f].stripes-t.Stripes)),
					asm.Mov.Imm(asm.R2, 0))
				t.CallFunction(wait)
				t.stripeAddress(asm.R6, f, "")
				t.Emit(asm.JNE.Imm(asm.R0, 0, got))
				for g := f; g < len(t.families); g++ {
					t.StoreConstant(asm.R6, t.heldStripe(g), 0, 8)
				}
				t.Jump("stripes.failed")
			})
		}
		t.checkEpoch(asm.R6)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.emitLater()
		t.Bind("stripes.failed")
		t.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction(give)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// checkEpoch goes to stripes.failed where a packet's epoch is over.
func (t *translator) checkEpoch(phv asm.Register) {
	current := t.NewLabel("current")
	t.stateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, OldestEpoch, 8)
	t.Load(asm.R3, phv, phvEpoch, 8)
	t.Emit(asm.JLE.Reg(asm.R2, asm.R3, current), asm.Mov.Imm(asm.R2, 1),
		code.Atomic(asm.AddAtomic, asm.R1, asm.R2, EpochDropped))
	t.Jump("stripes.failed")
	t.Bind(current)
}

// unlockInside gives back what a packet has that has been inside.
func (t *translator) unlockInside() {
	if !t.striped() {
		t.unlockRegisters()
		return
	}
	stripes, free := t.NewLabel("stripes"), t.NewLabel("outside")
	t.Load(asm.R1, code.PHV, phvLocked, 1)
	t.Emit(asm.JNE.Imm(asm.R1, hasLock, stripes))
	t.unlockRegisters()
	t.Bind(free)
	t.afterwards(func() {
		t.Bind(stripes)
		t.callWithPHV(t.giveBackFunction())
		t.Jump(free)
	})
}

// giveBackStripes gives those back that the PHV has.
func (t *translator) giveBackStripes(phv asm.Register) {
	for f := range t.families {
		none := t.NewLabel("none")
		t.stripeAddress(phv, f, none)
		t.turnVersion(asm.R1)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Bind(none)
	}
}

// stripesBytes is how large all stripes are together.
func (p *Plan) stripesBytes() int { return len(p.families) * p.stripes * stripeBytes }

// waitForStripeFunction is the function that waits for the stripe that is R1 behind the first one:
// it returns 1 when it has it, and 0 when that has taken too long.
func (t *translator) waitForStripeFunction() string {
	t.once("stripe.wait", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.Load(asm.R2, asm.R6, 8, 8)
		t.Emit(asm.And.Imm(asm.R2, ^int32(stripeBytes-1)),
			asm.JGE.Imm(asm.R2, int32(t.stripesBytes()), "stripe.beyond"))
		t.stateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R2), asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
			code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, "stripe.got"),
			asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("stripe.got")
		t.StoreConstant(asm.R6, 0, 1, 8)
		t.Bind("stripe.beyond")
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	return t.once("stripe.free", func() {
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

// takeStripesFunction is the function that takes all stripes for who has the one lock, one after
// the other, and returns 1; or none, and 0, when that has taken too long.
func (t *translator) takeStripesFunction() string {
	t.giveStripesFunction()
	t.once("stripes.each", func() { // which one is next is in the state, guarded by the one lock
		t.stateAddress(asm.R6, t.taking)
		t.Load(asm.R7, asm.R6, 0, 8)
		t.Emit(asm.And.Imm(asm.R7, ^int32(stripeBytes-1)),
			asm.JGE.Imm(asm.R7, int32(t.stripesBytes()), "stripes.end"))
		t.stateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
			code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JNE.Imm(asm.R0, 0, "stripes.busy"))
		t.turnVersion(asm.R1)
		t.Emit(asm.Add.Imm(asm.R7, stripeBytes))
		t.Store(asm.R6, 0, asm.R7, 8)
		t.Emit(asm.JGE.Imm(asm.R7, int32(t.stripesBytes()), "stripes.end"))
		t.Bind("stripes.busy")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("stripes.end")
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	return t.once("stripes.take", func() {
		t.stateAddress(asm.R1, t.taking)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R1, lockTries))
		t.LoadFunction(asm.R2, "stripes.each")
		t.Emit(asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.stateAddress(asm.R1, t.taking)
		t.Load(asm.R1, asm.R1, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1),
			asm.JGE.Imm(asm.R1, int32(t.stripesBytes()), "stripes.taken"),
			asm.RSh.Imm(asm.R1, int32(log2(stripeBytes))))
		t.Emit(asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.give")
		t.Emit(asm.Mov.Imm(asm.R0, 0))
		t.Bind("stripes.taken")
		t.Emit(asm.Return())
	})
}

// giveStripesFunction is the function that gives the first R1 stripes back.
func (t *translator) giveStripesFunction() string {
	t.once("stripes.back", func() { // R1 is which one
		t.Emit(asm.JGE.Imm(asm.R1, int32(len(t.families)*t.stripes), "stripes.none"),
			asm.LSh.Imm(asm.R1, int32(log2(stripeBytes))), asm.Mov.Reg(asm.R3, asm.R1))
		t.stateAddress(asm.R1, t.Stripes)
		t.Emit(asm.Add.Reg(asm.R1, asm.R3))
		t.turnVersion(asm.R1)
		t.StoreConstant(asm.R1, 0, 0, 8)
		t.Bind("stripes.none")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
	return t.once("stripes.give", func() {
		t.LoadFunction(asm.R2, "stripes.back")
		t.Emit(asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// lockAllFunction is the function that takes the one lock and all stripes for the packet whose PHV
// is R1, and returns 1; or none, and 0.
func (t *translator) lockAllFunction() string {
	t.takeStripesFunction()
	t.giveBackFunction()
	return t.once("registers.all", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.acquire(t.Lock, "registers.busy")
		t.stateAddress(asm.R1, t.Lock)
		t.turnVersion(asm.R1)
		t.Emit(asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.take")
		t.Emit(asm.JEq.Imm(asm.R0, 0, "registers.back"))
		t.StoreConstant(asm.R6, phvLocked, hasAll, 1)
		t.checkEpoch(asm.R6)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		t.Bind("stripes.failed")
		t.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("registers.give")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind("registers.back")
		t.stateAddress(asm.R1, t.Lock)
		t.turnVersion(asm.R1)
		t.release(t.Lock)
		t.Bind("registers.busy")
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}

// giveBackFunction is the function that gives back what the packet has whose PHV is R1, but for the
// one lock alone.
func (t *translator) giveBackFunction() string {
	t.giveStripesFunction()
	return t.once("registers.give", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R1))
		t.Load(asm.R1, asm.R6, phvLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, hasAll, "registers.each"))
		t.giveBackStripes(asm.R6)
		t.Jump("registers.given")
		t.Bind("registers.each")
		t.Emit(asm.Mov.Imm(asm.R1, int32(len(t.families)*t.stripes)), asm.Mov.Imm(asm.R2, 0))
		t.CallFunction("stripes.give")
		t.stateAddress(asm.R1, t.Lock)
		t.turnVersion(asm.R1)
		t.release(t.Lock)
		t.Bind("registers.given")
		t.StoreConstant(asm.R6, phvLocked, hasNothing, 1)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	})
}
