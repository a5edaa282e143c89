package progfuzz

import "strings"

// node is a piece of a program's text that can be left out: a line, or a line that opens a block
// and what is in it.
type node struct {
	open  string // may be of several lines
	kids  []*node
	mid   string // what parts kids from more ("} else {"); "" if there is no more
	more  []*node
	close string
	fixed bool // the program is none without it
	out   bool // left out, by Reduce
}

// Program is a program and what makes it up.
type Program struct {
	Seed     uint64
	Features Features
	top      []*node
}

// Source is the program as P4.
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

// Reduce leaves out what it can, many pieces at once and then fewer, while fails says that the rest
// still fails. It asks at most tries times.
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

// removable lists the pieces that may go: what contains others before these.
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

// line is a piece without others in it; keep one that stays.
func line(text string) *node { return &node{open: text} }
func keep(text string) *node { return &node{open: text, fixed: true} }

// block is a piece with others in it.
func block(open string, kids []*node, close string) *node {
	return &node{open: open, kids: kids, close: close}
}

func fixedBlock(open string, kids []*node, close string) *node {
	return &node{open: open, kids: kids, close: close, fixed: true}
}
