package ebpf

import (
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile"
)

// Hook says where in the kernel the programs of a switch are attached. It is a flag's value.
type Hook = attach.Hook

// The choices of [Options.Hook].
const (
	HookAuto   = attach.HookAuto
	HookTC     = attach.HookTC
	HookXDP    = attach.HookXDP
	HookClsact = attach.HookClsact
)

// Probe reports why this engine cannot run here: nil if it can, otherwise an error that says what
// the kernel or the process lacks.
func Probe() error { return attach.Probe() }

// Support is this engine's support for a construct of v1model.
type Support = compile.Support

// Supported lists the constructs that the engine supports and refuses, for docs/switch.md.
func Supported() []Support { return compile.Supported() }
