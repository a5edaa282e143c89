package reference

import (
	"fmt"
	"unsafe"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// Compile compiles the actions, tables and arrays of a program, in the order of their dependencies.
// Allocate must allocate the memory of the arrays.
func Compile(prog *bmv2json.Program, lay *packet.Layout, conf Config) *Compiler {
	p := &Program{FieldLists: map[int][]packet.Run{}, LearnLists: map[int][]expression.WideNumber{}}
	for _, r := range prog.Registers {
		p.Registers = append(p.Registers, arrays.NewRegister(r))
	}
	c := &Compiler{Compiler: expression.New(prog, lay, p.Registers), Program: p, Config: conf}
	c.externs()
	for _, t := range prog.HeaderTypes {
		if t.VL >= 0 && t.Fields[t.VL].Offset%8 != 0 {
			refusal.Panic(t.Path, "field %q of variable length, which does not start on a byte",
				t.Fields[t.VL].Name)
		}
	}
	c.errors()
	checkState(prog)
	for range prog.Counters {
		c.Counters = append(c.Counters, &arrays.Counter{})
	}
	for _, m := range prog.Meters {
		if m.Rates != 2 {
			refusal.Panic(m.Path, "a meter of %d rates", m.Rates)
		}
		c.Meters = append(c.Meters, &arrays.Meters{})
	}
	for _, s := range prog.ValueSets {
		c.ValueSets = append(c.ValueSets, &matchtables.ValueSet{Source: s})
	}
	for _, l := range prog.FieldLists {
		var runs []packet.Run
		for _, f := range l.Fields {
			if f.IsValidity() || f.Field.VL {
				refusal.Panic(l.Path, "%s in a field list", f)
			}
			at := c.Layout.LaneOf(f)
			runs = append(runs, packet.Run{From: at, To: at + wideint.Lanes(f.Width())})
		}
		c.FieldLists[l.ID] = runs
	}
	for _, l := range prog.LearnLists {
		for i, e := range l.Elements {
			c.LearnLists[l.ID] = append(c.LearnLists[l.ID], c.WideNumber(e, wideint.Lanes(l.Widths[i])))
		}
	}
	for _, k := range prog.Calculations {
		c.Calculations = append(c.Calculations,
			calculation.New(c.Layout, k.Algo, k.Input, k.Path, c.Random))
	}
	for _, a := range prog.ActionProfiles() {
		var selector *calculation.Calculation
		if s := a.Selector; s != nil {
			selector = calculation.New(c.Layout, s.Algo, s.Input, a.Path, c.Random)
		}
		c.ActionProfiles = append(c.ActionProfiles, matchtables.NewActionProfile(a, selector, c.PacketLock))
	}
	for _, a := range prog.Actions {
		c.Actions = append(c.Actions, c.action(a))
	}
	for _, t := range prog.Tables() {
		var pr *matchtables.ActionProfile
		if t.ActionProfile != nil {
			pr = c.ActionProfiles[t.ActionProfile.Index]
		}
		c.Tables = append(c.Tables, matchtables.NewTable(t, c.Layout, pr, c.PacketLock))
	}
	return c
}

// checkState refuses a program whose arrays need too much memory.
func checkState(prog *bmv2json.Program) {
	total, largest, what, path := 0, 0, "", ""
	add := func(kind, name, at string, bytes int) {
		if total += bytes; bytes > largest {
			largest, what, path = bytes, fmt.Sprintf("%s %q", kind, name), at
		}
	}
	for _, r := range prog.Registers {
		add("register", r.Name, r.Path, r.Size*wideint.Lanes(r.Width)*8)
	}
	for _, c := range prog.Counters {
		add("counter", c.Name, c.Path, c.Size*int(unsafe.Sizeof(target.CounterData{})))
	}
	for _, m := range prog.Meters {
		add("meter", m.Name, m.Path, m.Size*int(unsafe.Sizeof(arrays.Meter{})))
	}
	if total > maxState {
		refusal.Panic(path,
			"registers, counters and meters of %d MB in all (at most %d); the largest is %s of %d MB", total>>20, maxState>>20, what, largest>>20)
	}
}

// errors finds the value of each error. If the program does not number an error of the core
// library, the error gets a value after the others, as in BMv2.
func (c *Compiler) errors() {
	c.errs = map[string]uint64{}
	next := uint64(0)
	for _, e := range c.Source.Errors {
		c.errs[e.Name] = uint64(e.Value)
		next = max(next, uint64(e.Value)+1)
	}
	for _, name := range []string{
		"NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort",
		"ParserTimeout", "ParserInvalidArgument",
	} {
		if _, ok := c.errs[name]; !ok {
			c.errs[name] = next
			next++
		}
	}
}

// Allocate allocates the program's arrays.
func (p *Program) Allocate(prog *bmv2json.Program) {
	for _, r := range p.Registers {
		r.Allocate()
	}
	for i, c := range prog.Counters {
		p.Counters[i].Allocate(c.Size)
	}
	for i, m := range prog.Meters {
		p.Meters[i].Allocate(m.Size, m.Bytes)
	}
}

// maxState is the largest total size of a program's registers, counters and meters, in bytes.
// Larger programs are refused, because the Go runtime ends a process that gets no more memory, and
// such a size is probably a mistake. While a program is being replaced, both programs need memory.
const maxState = 1 << 30
