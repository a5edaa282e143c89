package asm

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestAssemble checks that Assemble drops unreachable instructions and jumps to the next
// instruction. Other jumps must go to their labels.
func TestAssemble(t *testing.T) {
	f := New("main")
	yes, next := f.NewLabel("yes"), f.NewLabel("next")
	f.Emit(asm.JEq.Imm(asm.R1, 0, yes))
	f.Jump(next)
	f.Bind(next)
	f.LoadConstant(asm.R0, 1)
	f.Emit(asm.Return())
	f.Emit(asm.Mov.Imm(asm.R0, 7)) // this instruction is unreachable
	f.Bind(yes)
	f.LoadConstant(asm.R0, 1<<40)
	f.Emit(asm.Return())
	insns, err := Link([]*Function{f, New("never called")})
	if err != nil {
		t.Fatal(err)
	}
	want := []asm.OpCode{asm.JEq.Imm(asm.R1, 0, "").OpCode, asm.Mov.Imm(asm.R0, 0).OpCode,
		asm.Return().OpCode, asm.LoadImm(asm.R0, 0, asm.DWord).OpCode, asm.Return().OpCode}
	if len(insns) != len(want) {
		t.Fatalf("%d instructions, not %d:\n%v", len(insns), len(want), insns)
	}
	for i, in := range insns {
		if in.OpCode != want[i] {
			t.Errorf("instruction %d is %v", i, in)
		}
	}
	if insns[0].Reference() != insns[3].Symbol() {
		t.Errorf("the jump goes to %q, the label is at %q", insns[0].Reference(), insns[3].Symbol())
	}
}

// TestAssembleRefuses checks that Assemble returns errors for invalid functions.
func TestAssembleRefuses(t *testing.T) {
	for want, write := range map[string]func(*Function){
		"runs off its end": func(f *Function) { f.LoadConstant(asm.R0, 0) },
		"is nowhere":       func(f *Function) { f.Jump("elsewhere") },
	} {
		f := New("f")
		write(f)
		if _, err := f.Assemble(true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}
