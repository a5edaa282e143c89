package main

import (
	"fmt"
	"regexp"
	"strings"
)

// applyLines is the maximum number of lines of an apply block. A longer block, which does not fit
// on a screen, should be two stages.
const applyLines = 80

var (
	// p4Quiet matches comments, preprocessor lines and strings.
	p4Quiet = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*`)
	p4Apply = regexp.MustCompile(`\bapply\s*\{`)
	p4Named = regexp.MustCompile(
		`\b(?:(table|action)\s+(\w+)\s*[({]` +
			`|(?i:(register|counter|meter|direct_counter|direct_meter|action_profile|action_selector|value_set))` +
			`\s*(?:<[^;]*>)?\s*\([^;{}]*\)\s*(\w+)\s*;)`)
)

// checkP4 reports each apply block that is too long. In the store's own program, it also reports
// each P4Info object without an explicit id. p4c derives such an id from the name, so renaming the
// object would break controllers that know it by its id.
func checkP4(name string, text []byte) (out []string) {
	if !strings.HasSuffix(name, ".p4") {
		return nil
	}
	program := p4Quiet.ReplaceAllStringFunc(string(text), func(s string) string {
		return strings.Repeat("\n", strings.Count(s, "\n"))
	})
	line := func(at int) int { return 1 + strings.Count(program[:at], "\n") }
	for _, at := range p4Apply.FindAllStringIndex(program, -1) {
		if n := 1 + strings.Count(block(program[at[1]:]), "\n"); n > applyLines {
			out = append(out, fmt.Sprintf("%s:%d: p4-apply: %d lines, %d are the most", name, line(at[0]), n, applyLines))
		}
	}
	// No controller depends on the ids of the paper's program.
	if !strings.HasPrefix(name, "p4src/") || strings.HasPrefix(name, "p4src/paper/") {
		return out
	}
	for _, m := range p4Named.FindAllStringSubmatchIndex(program, -1) {
		before := program[:m[0]]
		notes := before[strings.LastIndexAny(before, ";{}")+1:]
		if strings.Contains(notes, "@id(") || strings.Contains(notes, "@hidden") {
			continue
		}
		what := strings.Join(strings.Fields(program[m[0]:m[1]]), " ")
		out = append(out, fmt.Sprintf("%s:%d: p4-ids: %s has no @id", name, line(m[0]), strings.TrimRight(what, " ({;")))
	}
	return out
}

// block returns the text up to the brace that closes the block.
func block(text string) string {
	open := 1
	for i, c := range text {
		switch c {
		case '{':
			open++
		case '}':
			open--
		}
		if open == 0 {
			return text[:i]
		}
	}
	return text
}
