package emit

import (
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// FunctionOnce adds a function to the program unless it already has a function of this name.
func (t *Emitter) FunctionOnce(name string, write func()) string {
	for _, f := range t.functions {
		if f.Name == name {
			return name
		}
	}
	t.AddFunction(name, write)
	return name
}

// AddFunction adds a function to the program.
func (t *Emitter) AddFunction(name string, write func()) {
	later := t.later
	t.later = nil
	f := t.WriteFunction(name, write)
	t.later = later
	t.functions = append(t.functions, f)
}

// EmitLater postpones a part of a function's code to the end of the function.
func (t *Emitter) EmitLater(emit func()) { t.later = append(t.later, emit) }

// FlushLater emits the postponed parts. Their facts about fields only hold for the packets that
// reach them, so code that is emitted afterwards must not use these facts.
func (t *Emitter) FlushLater() {
	facts, params, constants := t.Facts, t.Params, t.Constants
	for len(t.later) > 0 {
		emit := t.later[0]
		t.later = t.later[1:]
		emit()
		t.Facts, t.Params, t.Constants = facts, params, constants
	}
}

// WriteFunction writes a function while another function is being written. It does not change the
// other function.
func (t *Emitter) WriteFunction(name string, write func()) *code.Function {
	outer := t.Function
	t.Function = code.New(name)
	write()
	done := t.Function
	t.Function = outer
	return done
}
