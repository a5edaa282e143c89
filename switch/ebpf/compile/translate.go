package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/compile/paths"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Translate translates the whole program. striped reports whether the program supports stripes and
// rarely locks all of them. If so, it may run in any locking mode (locking/stripes.go), otherwise
// only in ModeOne.
func Translate(p *memory.Plan, h emit.Hook, f emit.Maps, s emit.Settings) (insns asm.Instructions,
	striped bool, err error) {
	defer ir.Catch(&err)
	for variants := paths.MostVariants; ; variants /= 2 {
		insns, striped, err = translate(p, h, f, s, variants)
		// A program that is compiled path by path can become longer than a jump reaches. Fewer
		// variants make it shorter.
		if err != nil || !f.Paths || len(insns) <= paths.FarthestJump || variants == 1 {
			return insns, striped, err
		}
	}
}

// translate translates the program. A program compiled path by path gets at most the given number
// of variants of each place.
func translate(p *memory.Plan, h emit.Hook, f emit.Maps, s emit.Settings,
	variants int) (insns asm.Instructions, striped bool, err error) {
	t := newTranslator(p, h, f, s)
	if f.Paths {
		t.control.Steps, t.live = paths.Find(p, "ingress", paths.Options{Variants: variants, Known: f.Known,
			Unlocked: s.Unlocked, Overtaken: s.Overtaken})
		t.locks.ByPaths = t.control.Steps != nil
		striped = t.locks.Striped() && paths.StripesFit(t.control.Steps)
	}
	main := t.WriteFunction("ingress", t.entry)
	egress := t.WriteFunction("egress", t.egress)
	all := []*code.Function{main, egress}
	if h == emit.TC && f.Resume != 0 {
		all = append(all, t.WriteFunction("headers", t.writeHeaders))
		if t.Requests.Reinjects() {
			all = append(all, t.WriteFunction("leave", t.afterEgress))
		}
	}
	insns, err = t.Link(all...)
	return insns, striped, err
}
