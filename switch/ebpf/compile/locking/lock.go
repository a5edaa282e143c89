package locking

import (
	"runtime"

	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// A packet may look up an entry and then wait for the registers while the control plane changes
// that entry. So a packet notes the epoch in which it begins. After a change, Barrier increments
// the epoch and gives packets that began earlier time to end (barrierGrace). It then bars packets
// of earlier epochs from the registers, and waits until the lock is free. Barrier thus waits for a
// packet that already holds the registers. A packet that locks them later is dropped before it
// touches them. This costs a packet two loads. Waiting until all packets have ended
// (runtime.WaitForPackets) would cost the control plane 8 to 40 ms for each request. Without the
// grace period, one request in eighty dropped a packet of a client that sends without pause.

// lockTries is how often a packet checks whether the lock is free before the packet is dropped.
// This takes some tens of milliseconds, a thousand times longer than any packet holds the lock.
const lockTries = 1 << 23

// LockRegisters emits code that waits for the registers' lock. Packets are processed with network
// interrupts disabled (softirq). So the holder runs on another CPU, and the waiting packet never
// keeps the holder from finishing.
func (t *Locks) LockRegisters() {
	drop := "ingress.drop"
	if t.Name == "egress" {
		drop = "egress.drop"
	}
	t.Acquire(t.Lock, drop)
	current := t.NewLabel("current")
	t.StateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, memory.OldestEpoch, 8)
	t.Load(asm.R3, code.PHV, memory.PHVEpoch, 8)
	t.Emit(asm.JLE.Reg(asm.R2, asm.R3, current), asm.Mov.Imm(asm.R2, 1),
		code.Atomic(asm.AddAtomic, asm.R1, asm.R2, memory.EpochDropped))
	t.Release(t.Lock)
	t.Jump(drop)
	t.Bind(current)
	t.StoreConstant(code.PHV, memory.PHVLocked, 1, 1)
	if t.Versioned() {
		t.StateAddress(asm.R1, t.Lock)
		t.TurnVersion(asm.R1)
	}
}

// RecordEpoch emits code that records the epoch in which a packet begins, before the packet looks
// up anything. It uses R1 and R2.
func (t *Locks) RecordEpoch() {
	if !t.LocksRegisters() {
		return
	}
	t.StateAddress(asm.R1, t.Epoch)
	if runtime.GOARCH == "amd64" { // amd64 does not reorder loads with later loads
		t.Load(asm.R2, asm.R1, 0, 8)
	} else {
		t.Emit(asm.Mov.Imm(asm.R2, 0), code.Atomic(asm.FetchAdd, asm.R1, asm.R2, 0))
	}
	t.Store(code.PHV, memory.PHVEpoch, asm.R2, 8)
}

// Acquire emits code that takes a lock, or jumps to failed. It uses R0 to R5.
func (t *Locks) Acquire(lock int, failed string) {
	got := t.NewLabel("got")
	t.StateAddress(asm.R1, lock)
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
		code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, got),
		asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
	t.CallFunction(t.waitFunction(lock))
	t.Emit(asm.JEq.Imm(asm.R0, 0, failed))
	t.Bind(got)
}

// waitFunction emits the function that waits for a lock. The function returns 1 when it has taken
// the lock, and 0 after too many tries.
func (t *Locks) waitFunction(lock int) string {
	name := "wait"
	if lock != t.Lock {
		name = "wait.meters"
	}
	look := t.FunctionOnce(name+".look", func() {
		t.Emit(asm.Mov.Reg(asm.R6, asm.R2))
		t.StateAddress(asm.R1, lock)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R2, 1),
			code.Atomic(asm.CmpXchg, asm.R1, asm.R2, 0), asm.JEq.Imm(asm.R0, 0, name+".got"))
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		t.Bind(name + ".got")
		t.StoreConstant(asm.R6, 0, 1, 8)
		t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	})
	return t.FunctionOnce(name, func() {
		if lock == t.Lock {
			t.StateAddress(asm.R1, t.Contended)
			t.Emit(asm.Mov.Imm(asm.R2, 1), code.Atomic(asm.AddAtomic, asm.R1, asm.R2, 0))
		}
		t.StoreConstant(asm.R10, -8, 0, 8)
		t.Emit(asm.Mov.Imm(asm.R1, lockTries))
		t.LoadFunction(asm.R2, look)
		t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnLoop)
		t.Load(asm.R0, asm.R10, -8, 8)
		t.Emit(asm.Return())
	})
}

// UnlockRegisters emits code that releases the registers' lock.
func (t *Locks) UnlockRegisters() {
	t.StoreConstant(code.PHV, memory.PHVLocked, 0, 1)
	if t.Versioned() {
		t.StateAddress(asm.R1, t.Lock)
		t.TurnVersion(asm.R1)
	}
	t.Release(t.Lock)
}

// Release emits code that releases a lock. It uses R1 and R2.
func (t *Locks) Release(lock int) {
	t.StateAddress(asm.R1, lock)
	if runtime.GOARCH == "amd64" { // amd64 does not reorder stores with earlier loads and stores
		t.StoreConstant(asm.R1, 0, 0, 8)
		return
	}
	t.Emit(asm.Mov.Imm(asm.R2, 0), code.Atomic(asm.Xchg, asm.R1, asm.R2, 0))
}
