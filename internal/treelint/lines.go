package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	proseWidth = 100 // maximum width of comments and of Markdown, in columns; a tab counts four
	codeWidth  = 120 // maximum width of code in columns, without the content of strings
)

// comment matches the beginning of a comment line.
var comment = regexp.MustCompile(`^\s*(//|#|\*)`)

// checkWidth reports lines that are too wide. It ignores lines that cannot be broken, such as lines
// with a string, a row of a table, an address, or a drawing.
func checkWidth(name string, text []byte) (out []string) {
	lines := strings.Split(string(text), "\n")
	switch ext := path.Ext(name); {
	case ext == ".go":
		lines = withoutStrings(text)
	case ext == ".md":
		lines = withoutListings(lines)
	case ext != ".p4": // ruff checks the width of Python's lines
		return nil
	}
	for n, line := range lines {
		limit := codeWidth
		if path.Ext(name) == ".md" || comment.MatchString(line) {
			limit = proseWidth
		}
		if unbreakable(line, path.Ext(name)) || columns(line) <= limit {
			continue
		}
		out = append(
			out,
			fmt.Sprintf("%s:%d: line-width: %d columns, %d are the most", name, n+1, columns(line), limit),
		)
	}
	return out
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// unbreakable reports whether a line is a drawing, a row of a table or a Go directive, or contains
// a very long word.
func unbreakable(line, ext string) bool {
	trimmed := strings.TrimSpace(line)
	if strings.ContainsAny(line, "─│┌└├▶◀") || strings.HasPrefix(trimmed, "//go:") ||
		strings.HasPrefix(trimmed, "// +kubebuilder:") { // markers of controller-gen must stay on one line
		return true
	}
	if strings.HasPrefix(trimmed, "//\t") || strings.HasPrefix(trimmed, "*   ") { // the line is part of a listing
		return true
	}
	if ext == ".md" && strings.HasPrefix(trimmed, "|") {
		return true
	}
	for _, word := range strings.Fields(line) {
		if utf8.RuneCountInString(word) > proseWidth-20 {
			return true
		}
	}
	return false
}

// withoutStrings returns a Go file's lines with empty string literals.
func withoutStrings(text []byte) []string {
	kept := append([]byte(nil), text...)
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.STRING {
			at := file.Offset(pos)
			for i := range len(literal) {
				if kept[at+i] != '\n' {
					kept[at+i] = 0
				}
			}
		}
	}
	return strings.Split(strings.ReplaceAll(string(kept), "\x00", ""), "\n")
}

// withoutListings returns a Markdown file's lines. Lines inside fences are empty.
func withoutListings(lines []string) []string {
	out, inside := make([]string, len(lines)), false
	for n, line := range lines {
		switch fence := strings.HasPrefix(strings.TrimSpace(line), "```"); {
		case fence:
			inside = !inside
		case !inside:
			out[n] = line
		}
	}
	return out
}

// retired maps words that newcomers did not understand to their replacements.
var retired = map[string]string{
	"softswitch":      "userspace",
	"handover":        "the metadata cookie",
	"amiss":           "inconsistent",
	"takeBack":        "releaseIndexes",
	"reign":           "the leader's term",
	"send_on":         "forward_to",
	"driven down":     "re-propagated",
	"newcomer":        "joiner",
	"putBack":         "reattach",
	"behind its back": "what goes on",
}

// retiredWord finds a retired word.
var retiredWord = regexp.MustCompile(
	`\b(` + strings.Join(slices.Sorted(maps.Keys(retired)), "|") + `)\b`)

// checkWords reports retired words.
func checkWords(name string, text []byte) (out []string) {
	switch path.Ext(name) {
	case ".go", ".py", ".p4", ".md":
	default:
		return nil
	}
	if strings.HasPrefix(name, "internal/treelint/") {
		return nil
	}
	for n, line := range strings.Split(string(text), "\n") {
		for _, was := range retiredWord.FindAllString(line, -1) {
			out = append(out, fmt.Sprintf("%s:%d: words: %q is %q now", name, n+1, was, retired[was]))
		}
	}
	return out
}
