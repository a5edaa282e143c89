package delivery

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// EmitMessage emits the primitive log_msg. The code keeps Entry.
func (t *Delivery) EmitMessage(q *bmv2json.Primitive) {
	number := -1
	for i, m := range t.Messages {
		if m == q {
			number = i
		}
	}
	if number < 0 || t.Maps.Messages == 0 {
		return
	}
	done := t.NewLabel("said")
	t.StoreConstant(asm.R10, emit.NumberOnStack, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, emit.NumberOnStack))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done), asm.Mov.Reg(code.Temp, asm.R0))
	t.LoadConstant(asm.R1, t.Maps.Number)
	t.Store(code.Temp, 0, asm.R1, 8)
	t.StoreConstant(code.Temp, 8, int32(number), 8)
	at := memory.MessageHeader
	for _, e := range q.Args[1].Args {
		width := memory.MessageWidth(e)
		for w := memory.MessageWords(e) - 1; w >= 0; w-- {
			t.Compute(ir.And(t.Word(e, w), ir.Const(ir.Ones(min(64, width-64*w)))), 0)
			t.Store(code.Temp, at, asm.R1, 8)
			at += 8
		}
	}
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Messages), asm.Mov.Reg(asm.R2, code.Temp),
		asm.Mov.Imm(asm.R3, int32(at)), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnRingbufOutput)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done))
	t.StateAddress(asm.R2, t.MessagesLost)
	t.Emit(asm.Mov.Imm(asm.R1, 1), code.Atomic(asm.AddAtomic, asm.R2, asm.R1, 0))
	t.Bind(done)
}
