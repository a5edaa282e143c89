package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// truncateFrame makes the frame no longer than was asked for. The last frame is cut; of one that is
// needed again (copied) restore puts back what truncateFrame has taken off.
func (t *translator) truncateFrame(copied bool, drop string) (restore func()) {
	q := &t.Requests
	if !q.any() {
		return func() {}
	}
	whole := t.NewLabel("whole")
	t.Load(asm.R1, code.PHV, q.cut, 4)
	t.Load(asm.R2, code.PHV, phvLen, 4)
	t.StoreConstant(asm.R10, lengthOnStack, 0, 8)
	t.Emit(asm.JGE.Reg(asm.R1, asm.R2, whole))
	t.Store(asm.R10, lengthOnStack, asm.R2, 4)
	t.Store(code.PHV, phvLen, asm.R1, 4)
	if t.Captured {
		t.Bind(whole)
		return func() { t.restoreLength(false) }
	}
	if t.hook == XDP {
		t.Emit(asm.Sub.Reg(asm.R1, asm.R2), asm.Mov.Reg(asm.R2, asm.R1),
			asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnXdpAdjustTail)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
		t.Bind(whole)
		return func() {}
	}
	if copied {
		t.moveTail(true, drop)
	}
	t.Load(asm.R2, code.PHV, phvLen, 4)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeTail)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(whole)
	return func() { t.restoreLength(copied) }
}

// lengthOnStack is the length of the frame before it was cut; 0 where it was not.
const lengthOnStack = -72

func (t *translator) restoreLength(tail bool) {
	whole := t.NewLabel("uncut")
	t.Load(asm.R1, asm.R10, lengthOnStack, 4)
	t.Emit(asm.JEq.Imm(asm.R1, 0, whole))
	if tail {
		t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnSkbChangeTail)
		t.Emit(asm.JNE.Imm(asm.R0, 0, whole))
		t.moveTail(false, whole)
		t.Load(asm.R1, asm.R10, lengthOnStack, 4)
	}
	t.Store(code.PHV, phvLen, asm.R1, 4)
	t.Bind(whole)
}

// moveTail copies what is cut off from the frame to the buffer, or back.
func (t *translator) moveTail(off bool, failed string) {
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, failed), asm.Mov.Reg(asm.R3, asm.R0))
	t.Load(asm.R2, code.PHV, phvLen, 4)
	t.Load(asm.R4, asm.R10, lengthOnStack, 4)
	t.Emit(asm.Sub.Reg(asm.R4, asm.R2), asm.JGT.Imm(asm.R4, BufferSize, failed),
		asm.JEq.Imm(asm.R4, 0, failed))
	if off {
		t.loadBytes()
	} else {
		t.storeBytes()
	}
	t.Emit(asm.JNE.Imm(asm.R0, 0, failed))
}
