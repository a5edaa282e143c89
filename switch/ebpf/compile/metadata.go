package compile

import (
	"slices"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
)

// zeroMetadata sets all metadata to 0 that may be read before it is set. Unless ingress is compiled
// by its paths, that is unknown, and zeroMetadata clears all metadata.
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
