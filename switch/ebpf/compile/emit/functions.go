package emit

import (
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// FunctionOnce makes a function unless there is one of its name.
func (t *Emitter) FunctionOnce(name string, write func()) string {
	for _, f := range t.functions {
		if f.Name == name {
			return name
		}
	}
	t.AddFunction(name, write)
	return name
}

// AddFunction makes a function of the program.
func (t *Emitter) AddFunction(name string, write func()) {
	later := t.later
	t.later = nil
	f := t.WriteFunction(name, write)
	t.later = later
	t.functions = append(t.functions, f)
}

// EmitLater postpones a part of a function's code to the function's end.
func (t *Emitter) EmitLater(emit func()) { t.later = append(t.later, emit) }

// FlushLater emits the postponed parts. What they know about fields holds only for the packets that
// reach them, so code emitted after them must not use it.
func (t *Emitter) FlushLater() {
	facts, params, constants := t.Facts, t.Params, t.Constants
	for len(t.later) > 0 {
		emit := t.later[0]
		t.later = t.later[1:]
		emit()
		t.Facts, t.Params, t.Constants = facts, params, constants
	}
}

// WriteFunction writes a function, without touching the one that is being written.
func (t *Emitter) WriteFunction(name string, write func()) *code.Function {
	outer := t.Function
	t.Function = code.New(name)
	write()
	done := t.Function
	t.Function = outer
	return done
}
