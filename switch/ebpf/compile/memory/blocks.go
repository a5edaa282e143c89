package memory

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// findBlocks finds the headers that are moved between packet and PHV on their own: large headers
// after which the parser extracts only other large ones.
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
	// For each state that is reached after a block was extracted: what it reads.
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
