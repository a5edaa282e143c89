package ebpf

import (
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile"
)

// Hook is a flag's value that says where in the kernel the switch attaches its programs.
type Hook = attach.Hook

// The choices of [Options.Hook].
const (
	HookAuto   = attach.HookAuto
	HookTC     = attach.HookTC
	HookXDP    = attach.HookXDP
	HookClsact = attach.HookClsact
)

// Probe reports whether this engine can run here. The error says what the kernel or the process
// lacks.
func Probe() error { return attach.Probe() }

// Support describes whether this engine supports a construct of v1model.
type Support = compile.Support

// Supported lists the constructs that the engine supports and refuses, for docs/switch.md.
func Supported() []Support { return compile.Supported() }
