package interp

import (
	"fmt"
	"unsafe"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// compileStatements compiles the statements of a program, what others refer to first. What it keeps
// has no memory yet (allocate).
func compileStatements(prog *bmv2json.Program, lay *layout, conf config) *compiler {
	p := &program{fieldList: map[int][]laneRun{}, learn: map[int][]wideFn{}}
	for _, r := range prog.Registers {
		p.registers = append(p.registers, newRegisterArray(r))
	}
	c := &compiler{exprCompiler: newExprCompiler(prog, lay, p.registers), program: p, config: conf}
	c.externs()
	for _, t := range prog.HeaderTypes {
		if t.VL >= 0 && t.Fields[t.VL].Offset%8 != 0 {
			refuse(t.Path, "field %q of variable length, which does not start on a byte",
				t.Fields[t.VL].Name)
		}
	}
	c.errors()
	checkState(prog)
	for range prog.Counters {
		c.counters = append(c.counters, &counterArray{})
	}
	for _, m := range prog.Meters {
		if m.Rates != 2 {
			refuse(m.Path, "a meter of %d rates", m.Rates)
		}
		c.meters = append(c.meters, &meterArray{})
	}
	for _, s := range prog.ValueSets {
		c.valueSets = append(c.valueSets, &valueSet{src: s})
	}
	for _, l := range prog.FieldLists {
		var runs []laneRun
		for _, f := range l.Fields {
			if f.IsValidity() || f.Field.VL {
				refuse(l.Path, "%s in a field list", f)
			}
			at := c.lay.lane(f)
			runs = append(runs, laneRun{at, at + lanesOf(f.Width())})
		}
		c.fieldList[l.ID] = runs
	}
	for _, l := range prog.LearnLists {
		for i, e := range l.Elements {
			c.learn[l.ID] = append(c.learn[l.ID], c.wide(e, lanesOf(l.Widths[i])))
		}
	}
	for _, k := range prog.Calculations {
		c.calcs = append(c.calcs, newCalculation(c.lay, k.Algo, k.Input, k.Path, c.rand))
	}
	for _, a := range prog.Profiles() {
		var selector *calculation
		if s := a.Selector; s != nil {
			selector = newCalculation(c.lay, s.Algo, s.Input, a.Path, c.rand)
		}
		c.profiles = append(c.profiles, newProfile(a, selector, c.packets))
	}
	for _, a := range prog.Actions {
		c.actions = append(c.actions, c.action(a))
	}
	for _, t := range prog.Tables() {
		var pr *profile
		if t.Profile != nil {
			pr = c.profiles[t.Profile.Index]
		}
		c.tables = append(c.tables, newTable(t, c.lay, pr, c.packets))
	}
	return c
}

// checkState refuses a program whose arrays take too much memory.
func checkState(prog *bmv2json.Program) {
	total, largest, what, path := 0, 0, "", ""
	add := func(kind, name, at string, bytes int) {
		if total += bytes; bytes > largest {
			largest, what, path = bytes, fmt.Sprintf("%s %q", kind, name), at
		}
	}
	for _, r := range prog.Registers {
		add("register", r.Name, r.Path, r.Size*lanesOf(r.Width)*8)
	}
	for _, c := range prog.Counters {
		add("counter", c.Name, c.Path, c.Size*int(unsafe.Sizeof(target.CounterData{})))
	}
	for _, m := range prog.Meters {
		add("meter", m.Name, m.Path, m.Size*int(unsafe.Sizeof(meter{})))
	}
	if total > maxState {
		refuse(path,
			"registers, counters and meters of %d MB in all (at most %d); the largest is %s of %d MB", total>>20, maxState>>20, what, largest>>20)
	}
}

// errors finds the value of each error; those of the core library that the program does not number
// get values of their own, as in BMv2.
func (c *compiler) errors() {
	c.errs = map[string]uint64{}
	next := uint64(0)
	for _, e := range c.prog.Errors {
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

// allocate makes room for what the program keeps.
func (p *program) allocate(prog *bmv2json.Program) {
	for _, r := range p.registers {
		r.allocate()
	}
	for i, c := range prog.Counters {
		p.counters[i].allocate(c.Size)
	}
	for i, m := range prog.Meters {
		p.meters[i].allocate(m.Size, m.Bytes)
	}
}

// maxState bounds what a program's registers, counters and meters take in all, in bytes. Go
// ends a process that gets no more memory, so a program that asks for too much is refused
// before; one that asks for more than this is more likely wrong than meant. While a program is
// replaced there are two.
const maxState = 1 << 30
