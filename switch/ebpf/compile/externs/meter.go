package externs

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// meterFunction emits the function that queries a meter. R1 is the number of tokens that the packet
// needs, and R2 is the address of the cell. The function returns the colour in R0.
func (t *Externs) meterFunction() string {
	const name = "meter"
	return t.FunctionOnce(name, func() {
		const need, cell, micros, made = asm.R6, asm.R7, asm.R8, asm.R9
		green, busy := "meter.green", "meter.busy"
		t.Emit(asm.Mov.Reg(need, asm.R1), asm.Mov.Reg(cell, asm.R2))
		t.locks.Acquire(t.MeterLock, busy)
		// The control plane may have removed the configuration meanwhile.
		t.Load(asm.R1, cell, memory.MeterSet, 8)
		t.Emit(asm.JEq.Imm(asm.R1, 0, green))
		t.Call(asm.FnKtimeGetBootNs)
		t.LoadConstant(asm.R1, uint64(t.Started))
		t.Emit(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000), asm.Mov.Reg(micros, asm.R0))
		for i := range 2 {
			at := memory.MeterPeak + i*memory.BucketBytes
			same, fits, enough, less := t.NewLabel("same"), t.NewLabel("fits"),
				t.NewLabel("enough"), t.NewLabel("less")
			// The tokens that were produced since the clock's zero. Whole seconds and the rest are
			// multiplied separately, so that nothing overflows.
			t.Load(asm.R3, cell, at, 8)
			t.Emit(asm.Mov.Reg(made, micros), asm.Div.Imm(made, 1_000_000),
				asm.Mul.Reg(made, asm.R3))
			t.Emit(asm.Mov.Reg(asm.R1, micros), asm.Mod.Imm(asm.R1, 1_000_000),
				asm.Mul.Reg(asm.R1, asm.R3), asm.Div.Imm(asm.R1, 1_000_000),
				asm.Add.Reg(made, asm.R1))
			t.Load(asm.R4, cell, at+24, 8)
			t.Load(asm.R5, cell, at+16, 8)
			t.Emit(asm.JLE.Reg(made, asm.R4, same))
			t.Load(asm.R2, cell, at+8, 8)
			t.Emit(asm.Mov.Reg(asm.R1, made), asm.Sub.Reg(asm.R1, asm.R4),
				asm.JLE.Reg(asm.R1, asm.R2, less), asm.Mov.Reg(asm.R1, asm.R2))
			t.Bind(less)
			t.Emit(asm.Add.Reg(asm.R5, asm.R1), asm.JLE.Reg(asm.R5, asm.R2, fits),
				asm.Mov.Reg(asm.R5, asm.R2))
			t.Bind(fits)
			t.Store(cell, at+16, asm.R5, 8)
			t.Store(cell, at+24, made, 8)
			t.Bind(same)
			t.Emit(asm.JGE.Reg(asm.R5, need, enough))
			t.locks.Release(t.MeterLock)
			t.Emit(asm.Mov.Imm(asm.R0, int32(2-i)), asm.Return())
			t.Bind(enough)
			t.Emit(asm.Sub.Reg(asm.R5, need))
			t.Store(cell, at+16, asm.R5, 8)
		}
		t.Bind(green)
		t.locks.Release(t.MeterLock)
		t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		// No packet holds the lock that long. A meter that cannot be locked returns red.
		t.Bind(busy)
		t.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return())
	})
}

// askMeter emits code that puts into R0 the colour that the meter at R2 gives the packet.
func (t *Externs) askMeter(m *bmv2json.Meter) {
	asked := t.NewLabel("asked")
	t.Load(asm.R0, asm.R2, memory.MeterSet, 8)
	t.Emit(asm.JEq.Imm(asm.R0, 0, asked)) // Without a configuration, the colour is green (0).
	if m.Bytes {
		t.Load(asm.R1, code.PHV, memory.PHVInLen, 4)
	} else {
		t.Emit(asm.Mov.Imm(asm.R1, 1))
	}
	t.CallFunction(t.meterFunction())
	t.Bind(asked)
}

// ExecuteMeter emits execute_meter(meter, index, dst). An index beyond the array leaves dst
// unchanged.
func (t *Externs) ExecuteMeter(p *bmv2json.Primitive) {
	m := p.Args[0].Meter
	end := t.NewLabel("metered")
	if m.Size == 0 {
		return
	}
	t.CellAddress(t.Meters[m.Index], t.Index(p.Args[1]), end)
	t.askMeter(m)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	t.StoreNumber(p.Args[2])
	t.Bind(end)
}

// DirectMeter emits code that executes the meter of the entry at whose slot Entry points, and
// stores the colour.
func (t *Externs) DirectMeter(tp *memory.TablePlan) {
	t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Add.Imm(asm.R2, int32(tp.Meter)))
	t.askMeter(tp.Source.DirectMeter)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	t.StoreNumber(&bmv2json.Expr{Op: bmv2json.OpField, Field: tp.Source.DirectMeter.Result,
		Path: tp.Source.DirectMeter.Path})
}
