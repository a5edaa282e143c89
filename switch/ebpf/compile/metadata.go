package compile

import (
	"slices"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
)

// zeroMetadata emits code that clears the metadata that the program may read before setting it.
// This set is only known if ingress is compiled path by path. Otherwise zeroMetadata clears all
// metadata.
func (t *translator) zeroMetadata() {
	from := t.Layout.Next &^ 7
	if t.live == nil {
		t.Zero(code.PHV, from, t.Layout.Headers-from)
		return
	}
	t.Zero(code.PHV, from, t.Layout.Meta-from)
	parser := t.ParserTouches()
	words := map[int]bool{}
	for _, h := range t.Prog.Headers {
		if !h.Metadata {
			continue
		}
		standard := slices.Contains(analysis.StandardHeaders, h.Name)
		for i := range h.Type.Fields {
			f := t.Layout.Types[h.Type].Fields[i]
			off := t.Layout.Base[h.Index] + f.Off
			if standard || parser(off) || t.live.Contains(off) {
				for at := off &^ 7; at < off+f.Size; at += 8 {
					words[at] = true
				}
			}
		}
	}
	for at := t.Layout.Meta; at < t.Layout.Headers; at += 8 {
		if words[at] {
			t.Zero(code.PHV, at, 8)
		}
	}
}
