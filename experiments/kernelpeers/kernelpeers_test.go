package kernelpeers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	switchebpf "github.com/netcraq/netcraq/switch/ebpf"
)

// TestReplay: a program that moves the frame's beginning, cuts its end and overwrites it runs many
// times. It must get the original frame each time, because otherwise it ends with XDP_ABORTED.
func TestReplay(t *testing.T) {
	if err := switchebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	frame, err := frameTo(7, []byte("request"))
	if err != nil {
		t.Fatal(err)
	}
	for _, shift := range []int32{0, 128} {
		r, err := newReplay(frame, shift)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		insns := asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			// The last byte of the frame must still be the t of the request.
			asm.Mov.Imm(asm.R2, int32(len(frame)-1)),
			asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 1),
			asm.FnXdpLoadBytes.Call(),
			asm.LoadMem(asm.R7, asm.R10, -8, asm.Byte),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(len(frame)-1)),
			asm.StoreImm(asm.R10, -8, 'x', asm.Byte),
			asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 1),
			asm.FnXdpStoreBytes.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, -shift),
			asm.FnXdpAdjustHead.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, -shift-3),
			asm.FnXdpAdjustTail.Call(),
			asm.Mov.Imm(asm.R0, xdpTX),
			asm.JEq.Imm(asm.R7, 't', "right"),
			asm.Mov.Imm(asm.R0, xdpAborted),
			asm.Return().WithSymbol("right"),
		}
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: insns})
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		if took, err := r.time(program, 1000); err != nil || took <= 0 {
			t.Errorf("shift %d: %v, %v", shift, took, err)
		}
	}
}

// TestCompile: if a folder is not a checkout, or is a checkout of another version, the error names
// the folder and what is missing.
func TestCompile(t *testing.T) {
	s := source{folder: "store", file: "store.c", defines: map[string]int{"SIZE": 16}}
	if _, err := s.compile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "name the folder of the checkout") {
		t.Errorf("an empty folder: %v", err)
	}
	checkout := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(checkout, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(checkout, "store", "store.c"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("int x;\n")
	if _, err := s.compile(checkout); err == nil || !strings.Contains(err.Error(), "SIZE:16") {
		t.Errorf("without the definition: %v", err)
	}
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("skipped: clang is not on PATH")
	}
	write("#include <linux/bpf.h>\n#include \"bpf_helpers.h\"\n#define SIZE 9000000\n" +
		"struct {\n\t__uint(type, BPF_MAP_TYPE_ARRAY);\n\t__type(key, u32);\n\t__type(value, u64);\n\t__uint(max_entries, SIZE);\n} map SEC(\".maps\");\n" +
		"SEC(\"xdp\")\nint f(struct xdp_md *ctx)\n{\n\tu32 i = 0;\n\tu64 *v = bpf_map_lookup_elem(&map, &i);\n\treturn v && *v ? XDP_TX : XDP_PASS;\n}\n")
	spec, err := s.compile(checkout)
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Maps["map"].MaxEntries; n != 16 {
		t.Errorf("the table has %d entries", n)
	}
	if text, err := os.ReadFile(filepath.Join(checkout, "store", "store.c")); err != nil || !bytes.Contains(text, []byte("9000000")) {
		t.Errorf("the checkout was changed: %s, %v", text, err)
	}
}
