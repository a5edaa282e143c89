package locking

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Reading without the lock. A packet that only reads registers need not lock out other packets, if
// it can tell that no register was written meanwhile. A writer holds the lock, and increments a
// version before and after it writes. The version is odd while registers are being written (a
// sequence lock). Suppose that a program is compiled path by path (package paths), and that no step
// after the first register access writes a register. A packet then notes the version, reads the
// registers, and checks whether the version is still the same:
//
//	version even? ──▶ registers are read, as they come ──▶ version the same? ──▶ …
//	      │ no                                                    │ no: changes are undone
//	      └──────────▶ the lock, the same steps again ◀───────────┘
//
// Until the check, the packet must not do anything irreversible. It updates counters only
// afterwards, because nothing reads them. If it changes fields that are read again, it saves their
// old values at the beginning. It restores large headers from the frame, which is written much
// later. A packet whose epoch has ended (lock.go) notices that at the same check, and then takes
// the path with the lock.
//
// A version is useful only if the loads around it are not reordered. amd64 guarantees this. On
// other processors, packets use the lock.

// versionOffset is the distance in bytes from a lock to its version.
const versionOffset = 8

// Versioned reports whether packets that write registers increment versions.
func (t *Locks) Versioned() bool { return t.LocksRegisters() && t.HasVersions() }

// TurnVersion emits code that increments the version of the lock at base. It uses R2.
func (t *Locks) TurnVersion(base asm.Register) {
	t.Load(asm.R2, base, versionOffset, 8)
	t.Emit(asm.Add.Imm(asm.R2, 1))
	t.Store(base, versionOffset, asm.R2, 8)
}

// EmitUnlocked emits code that begins reading registers without the lock. If another packet holds
// the lock, the code jumps to locked. inside describes what the packet reads.
func (t *Locks) EmitUnlocked(u *paths.Unlocked, inside *paths.Step, locked string) {
	begun := t.NewLabel("begun")
	if t.Striped() {
		stripes := t.NewLabel("stripes")
		t.StateAddress(asm.R1, t.Mode)
		t.Load(asm.R2, asm.R1, 0, 8)
		t.Emit(asm.JNE.Imm(asm.R2, memory.ModeOne, stripes))
		t.EmitLater(func() {
			t.Bind(stripes)
			if u.Striped {
				t.Emit(asm.JNE.Imm(asm.R2, memory.ModeStripes, locked))
				t.noteVersions(u, inside, locked)
				t.Jump(begun)
			}
			t.Jump(locked)
		})
	}
	t.StateAddress(asm.R1, t.Lock)
	t.Load(asm.R2, asm.R1, versionOffset, 8)
	t.Store(code.PHV, memory.PHVVersion, asm.R2, 8)
	t.Emit(asm.And.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, locked))
	t.Bind(begun)
	at := t.Undo
	for _, s := range u.Keep {
		t.copySpan(at, s.Off, s.Size)
		at += s.Size
	}
}

// EmitValidate emits code that jumps to changed if registers were written after EmitUnlocked's
// code, or if the packet's epoch has ended.
func (t *Locks) EmitValidate(u *paths.Unlocked, changed string) {
	if t.Overtaken {
		t.Jump(changed)
		return
	}
	same, stripes := t.NewLabel("same"), t.NewLabel("stripes")
	t.Load(asm.R3, code.PHV, memory.PHVVersion, 8)
	if u.Striped {
		t.Emit(asm.JEq.Imm(asm.R3, byStripes, stripes))
		t.EmitLater(func() {
			t.Bind(stripes)
			for _, f := range u.Families {
				t.stripeAddress(code.PHV, f, "")
				t.Load(asm.R2, asm.R1, versionOffset, 8)
				t.Load(asm.R3, code.PHV, t.HeldVersion(f), 8)
				t.Emit(asm.JNE.Reg(asm.R2, asm.R3, changed))
			}
			t.Jump(same)
		})
	}
	t.StateAddress(asm.R1, t.Lock)
	t.Load(asm.R2, asm.R1, versionOffset, 8)
	t.Emit(asm.JNE.Reg(asm.R2, asm.R3, changed))
	t.Bind(same)
	t.StateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, memory.OldestEpoch, 8)
	t.Load(asm.R3, code.PHV, memory.PHVEpoch, 8)
	t.Emit(asm.JGT.Reg(asm.R2, asm.R3, changed))
}

// byStripes is the version that readers note if they use stripes. While no writer is active, the
// version of the global lock never has this value.
const byStripes = 1

// noteVersions emits code that notes the versions of the stripes that a packet reads. If another
// packet holds one of these stripes, the code jumps to locked.
func (t *Locks) noteVersions(u *paths.Unlocked, inside *paths.Step, locked string) {
	t.StoreConstant(code.PHV, memory.PHVVersion, byStripes, 8)
	t.Facts, t.Params, t.Constants = inside.Facts, nil, nil
	for _, f := range u.Families {
		t.findStripe(f, inside.Needs.Families[f].Base, locked)
		t.StateAddress(asm.R3, t.Families[f].Stripes)
		t.Emit(asm.Add.Reg(asm.R3, asm.R1))
		t.Load(asm.R2, asm.R3, versionOffset, 8)
		t.Store(code.PHV, t.HeldVersion(f), asm.R2, 8)
		t.Emit(asm.And.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, locked))
	}
}

// SpoilRead emits code that changes a value that a packet has read from a register, for tests. The
// packet then notices a concurrent write (Overtaken).
func (t *Locks) SpoilRead(q *bmv2json.Primitive) {
	p := t.Layout.Field(q.Args[0].Field)
	at, size := p.Off, p.Size
	if ir.Wide(p.Width) { // the value is big-endian
		at, size = p.Off+p.Size-1, 1
	}
	t.Load(asm.R1, code.PHV, at, size)
	t.Emit(asm.Xor.Imm(asm.R1, int32(uint64(q.Args[1].Register.Index+1)&ir.Ones(min(p.Width, 8)))))
	t.Store(code.PHV, at, asm.R1, size)
}

// RestoreKept emits code that restores the kept fields to their values from the beginning of the
// read.
func (t *Locks) RestoreKept(u *paths.Unlocked) {
	at := t.Undo
	for _, s := range u.Keep {
		t.copySpan(s.Off, at, s.Size)
		at += s.Size
	}
}

// copySpan emits code that copies bytes within the PHV. The bytes need not be word-aligned.
func (t *Locks) copySpan(to, from, size int) {
	for size > 0 {
		n := 8
		for n > size {
			n /= 2
		}
		t.Load(asm.R1, code.PHV, from, n)
		t.Store(code.PHV, to, asm.R1, n)
		to, from, size = to+n, from+n, size-n
	}
}
