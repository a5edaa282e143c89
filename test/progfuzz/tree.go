package progfuzz

import "strings"

// node is a piece of a program's text that Reduce can remove: a line, or a block with its content.
type node struct {
	open  string // first line or lines of the piece
	kids  []*node
	mid   string // text between kids and more, such as "} else {"; "" if more is empty
	more  []*node
	close string
	fixed bool // without this piece, the program is invalid
	out   bool // Reduce has removed this piece
}

// Program is a generated program, which consists of pieces.
type Program struct {
	Seed     uint64
	Features Features
	top      []*node
}

// Source returns the program as P4 text.
func (p *Program) Source() string {
	var b strings.Builder
	write(&b, p.top, 0)
	return b.String()
}

func write(b *strings.Builder, list []*node, depth int) {
	indent := func(text string) {
		if text == "" {
			return
		}
		for line := range strings.SplitSeq(text, "\n") {
			if line != "" {
				b.WriteString(strings.Repeat("    ", depth))
			}
			b.WriteString(line + "\n")
		}
	}
	for _, n := range list {
		if n.out {
			continue
		}
		indent(n.open)
		write(b, n.kids, depth+1)
		if n.mid != "" {
			indent(n.mid)
			write(b, n.more, depth+1)
		}
		indent(n.close)
	}
}

// Reduce removes pieces from the program as long as fails returns true for the rest. It first tries
// to remove many pieces at once, and then fewer. It calls fails at most `tries` times.
func (p *Program) Reduce(tries int, fails func() bool) {
	for size := len(p.removable()) / 2; size > 0; size /= 2 {
		list := p.removable()
		for start := 0; start < len(list); start += size {
			var gone []*node
			for _, n := range list[start:min(start+size, len(list))] {
				if !n.out {
					n.out, gone = true, append(gone, n)
				}
			}
			if tries--; tries < 0 || !fails() {
				for _, n := range gone {
					n.out = false
				}
			}
			if tries < 0 {
				return
			}
		}
	}
}

// removable returns the pieces that may be removed. A block comes before the pieces in it.
func (p *Program) removable() (list []*node) {
	var level func(nodes []*node)
	level = func(nodes []*node) {
		var inner []*node
		for _, n := range nodes {
			if n.out {
				continue
			}
			if !n.fixed {
				list = append(list, n)
			}
			inner = append(append(inner, n.kids...), n.more...)
		}
		if len(inner) > 0 {
			level(inner)
		}
	}
	level(p.top)
	return list
}

// line makes a piece without content. keep makes a piece that Reduce does not remove.
func line(text string) *node { return &node{open: text} }
func keep(text string) *node { return &node{open: text, fixed: true} }

// block makes a piece that contains other pieces.
func block(open string, kids []*node, close string) *node {
	return &node{open: open, kids: kids, close: close}
}

func fixedBlock(open string, kids []*node, close string) *node {
	return &node{open: open, kids: kids, close: close, fixed: true}
}
