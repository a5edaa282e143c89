package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// findBlocks returns the large headers that can move between packet and PHV separately. After a
// block, the parser may extract only other blocks.
func (p *Plan) findBlocks() map[*bmv2json.Header]bool {
	blocks := map[*bmv2json.Header]bool{}
	for _, h := range p.Prog.Headers {
		if !h.Metadata && h.Stack == nil && h.Union == nil && p.Layout.Types[h.Type].Block {
			blocks[h] = true
		}
	}
	if len(p.Prog.Parsers) == 0 || p.Prog.Parsers[0].Init == nil {
		return blocks
	}
	// after[s] is set if the parser may enter state s after it has extracted a block.
	after := map[*bmv2json.ParseState]bool{}
	var follow func(s *bmv2json.ParseState, seen bool)
	visited := map[*bmv2json.ParseState]bool{}
	follow = func(s *bmv2json.ParseState, seen bool) {
		if s == nil || visited[s] && (!seen || after[s]) {
			return
		}
		visited[s] = true
		after[s] = after[s] || seen
		for _, o := range s.Ops {
			switch {
			case o.Kind == bmv2json.ParserExtract && o.Header != nil && blocks[o.Header]:
				seen = true
			case seen && (o.Kind == bmv2json.ParserExtract || o.Kind == bmv2json.ParserExtractVL ||
				o.Kind == bmv2json.ParserAdvance ||
				o.Value != nil && o.Value.Op == bmv2json.OpLookahead):
				clear(blocks)
			}
		}
		for _, k := range s.Key {
			if seen && k.Op == bmv2json.OpLookahead {
				clear(blocks)
			}
		}
		for _, tr := range s.Transitions {
			follow(tr.Next, seen)
		}
	}
	follow(p.Prog.Parsers[0].Init, false)
	return blocks
}
