package main

import (
	"fmt"
	"regexp"
	"strings"
)

// applyLines is how long an apply may be: what does not fit on a screen is two stages.
const applyLines = 80

var (
	// p4Quiet is what does not belong to the program: comments, preprocessor lines and strings.
	p4Quiet = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*`)
	p4Apply = regexp.MustCompile(`\bapply\s*\{`)
	p4Named = regexp.MustCompile(
		`\b(?:(table|action)\s+(\w+)\s*[({]` +
			`|(?i:(register|counter|meter|direct_counter|direct_meter|action_profile|action_selector|value_set))` +
			`\s*(?:<[^;]*>)?\s*\([^;{}]*\)\s*(\w+)\s*;)`)
)

// checkP4 names each apply that is too long and, in the store's own program, whatever of P4Info has
// no id: without one p4c makes it up from the name, and who knows the program by its ids would have
// to be told of a new one.
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
	// No controller knows the paper's program by its ids.
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

// block is the text up to the brace that closes what has been opened before it.
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
