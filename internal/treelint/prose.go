package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// prosePattern is a construction that readers of this tree had to read twice.
type prosePattern struct {
	name    string
	find    *regexp.Regexp
	correct *regexp.Regexp // matches the correct English among the matches; nil if there is none
	instead string
}

// prosePatterns lists the patterns that checkProse searches for in every passage. A space in a
// pattern also matches a line break.
var prosePatterns = []prosePattern{
	pattern("is-told", `(is|are|was|were|be|been|being)( not| never| also| then)? (said|told|looked at|asked after)`, "",
		`name who acts: "the controller reports", not "is told"`),
	pattern("is-how", `(\w+ )?(is|are) (for )?how (long|much|many|often|far|fast|large|old)`,
		`^(that|this|which|here) `, `name the quantity: "the interval between", "the number of"`),
	pattern("is-what", `(\w+ )?(is|are) what`, `^(that|this|these|those|here|it) `,
		`say what the thing is, with a noun: "the text after", not "is what follows"`),
	pattern("fused-who", `(for|by|of|to|with|from|at|in|on|than|as|but) who [a-z]+`, "",
		`name the people or programs: "for callers that hold a token"`),
	pattern("is-no", `(\w+ )?(is|are) no [a-z]+`,
		`^(?:there|here) |\bno (longer|more|less|fewer|such|later|larger|smaller|greater|higher|lower|bigger|`+
			`better|worse|wider|shorter|faster|slower|older|newer|earlier|stronger|weaker|different|matter|`+
			`use|good|reason|doubt|surprise|accident|and|or|but)$`,
		`write "is not a"`),
	pattern("possessive", `(is|are) (the |a |an |its |their )?[a-z]+['’]s(?:[.,;:)]|$)`, `(is|are) (it|that|let|what)['’]s`,
		`say who does it or has it: "the node handles the rest", not "is the node's"`),
	pattern("alone", `(to|by|of|for|from|at|in|with) (the |a |one |its )?\w+ alone`, "", `write "only": "only to the leader"`),
	pattern("else", `[,;:] else [a-z]+`, "", `write "otherwise"`),
	pattern("of-both", `(which|one|none|neither|each|either|any) of both`, `of both [a-z]+`, `write "of the two"`),
	pattern("the-begin", `the begin`, "", `write "the beginning"`),
	pattern("the-while", `the while [a-z]+`, `while (loop|statement|clause)`, `write "meanwhile"`),
	pattern("he", `(he|his|him|himself|she|her|herself)`, "", `write "it" of a program and "they" of people`),
	pattern("causative-has", `(has|have|had) (the|a|an|its|each|every|another) [a-z]+ (go|do|make|send|tell|ask|begin|keep|become)`,
		"", `write "make": "makes a sleeping reader check again"`),
	pattern("where-if", `where (there (is|are)|(it|they|that) (can|has|have|does|do))`, "", `write "if"`),
}

// flagVoice matches texts of flags that begin in the wrong way. The text of a flag must be a noun
// phrase or an imperative, because it stands in a table of names.
var flagVoice = pattern("flag-voice",
	`^(?:(?:for|at|by|of|in|to|with|from|after|under|on) )?(how|what|which|where|who|whose|whom|whether)`,
	`^which`+"`", `begin with a noun or an imperative: "time that clients have", "address to listen on"`)

// pattern compiles a pattern, which consists of words separated by white space.
func pattern(name, find, correct, instead string) prosePattern {
	spaced := func(s string) string { return strings.ReplaceAll(s, " ", `\s+`) }
	p := prosePattern{name: name, instead: instead, find: regexp.MustCompile(`(?i)\b` + spaced(find) + `\b`)}
	if strings.HasSuffix(find, "$)") { // the pattern ends with a punctuation mark, so it needs no \b
		p.find = regexp.MustCompile(`(?i)\b` + spaced(find))
	}
	if correct != "" {
		p.correct = regexp.MustCompile(`(?i)` + spaced(correct))
	}
	return p
}

// passage is a text that people read. Its pieces have the order of the text.
type passage struct {
	kind   string // the passage's name in findings
	text   string
	pieces []piece
	flag   bool // the passage explains a flag
}

// piece is the position of a part of a passage: its offset in the text, and its line in the file.
type piece struct{ at, line int }

// write appends a text that begins at the given line of the file.
func (p *passage) write(text string, line int) {
	p.pieces = append(p.pieces, piece{len(p.text), line})
	p.text += text
}

// line returns the line of the file for an offset in the text.
func (p *passage) line(at int) int {
	after := slices.IndexFunc(p.pieces, func(q piece) bool { return q.at > at })
	if after < 0 {
		after = len(p.pieces)
	}
	return p.pieces[max(after-1, 0)].line
}

// checkProse finds the patterns in documents, in the output of commands' --help, and in package
// comments.
func checkProse(name string, text []byte) (out []string) {
	for _, p := range passages(name, text) {
		patterns := prosePatterns
		if p.flag {
			patterns = append(slices.Clone(patterns), flagVoice)
		}
		for _, q := range patterns {
			for _, at := range q.find.FindAllStringIndex(p.text, -1) {
				found := p.text[at[0]:at[1]]
				if q.correct != nil && q.correct.MatchString(found) {
					continue
				}
				out = append(out, fmt.Sprintf("%s:%d: prose: %s in %s: %q: %s", name, p.line(at[0]), q.name, p.kind,
					strings.Join(strings.Fields(found), " "), q.instead))
			}
		}
	}
	return out
}

// passages returns the texts of a file in which checkProse searches for the patterns.
func passages(name string, text []byte) []*passage {
	switch {
	case strings.HasPrefix(name, "internal/treelint/"): // this folder contains the patterns as examples
		return nil
	case name == "README.md" || strings.HasPrefix(name, "docs/") && strings.HasSuffix(name, ".md"):
		return []*passage{markdown(string(text))}
	case strings.HasSuffix(name, ".py"):
		return argparseHelp(string(text))
	case strings.HasSuffix(name, ".go"):
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil // the compiler reports this error
		}
		var out []*passage
		if file.Doc != nil {
			out = append(out, packageComment(fset, file.Doc))
		}
		if !strings.HasSuffix(name, "_test.go") {
			out = append(out, commandHelp(fset, file)...)
		}
		return out
	}
	return nil
}

var (
	inlineCode = regexp.MustCompile("(?s)``.+?``|`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)\s]*\)`)
	htmlNote   = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// markdown returns the text of a page without its listings, code and addresses.
func markdown(text string) *passage {
	text = strings.Join(withoutListings(strings.Split(text, "\n")), "\n")
	for _, code := range []*regexp.Regexp{htmlNote, inlineCode, linkTarget} {
		text = code.ReplaceAllStringFunc(text, func(s string) string { return "X" + strings.Repeat("\n", strings.Count(s, "\n")) })
	}
	p := &passage{kind: "a document"}
	for n, line := range strings.SplitAfter(text, "\n") {
		p.write(line, n+1)
	}
	return p
}

// packageComment returns a package's comment without its listings.
func packageComment(fset *token.FileSet, doc *ast.CommentGroup) *passage {
	p := &passage{kind: "a package comment"}
	for _, c := range doc.List {
		for n, line := range strings.Split(c.Text, "\n") {
			line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(line, "/*"), "//"), "*/")
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") {
				line = ""
			}
			p.write(line+"\n", fset.Position(c.Pos()).Line+n)
		}
	}
	return p
}

// flagCall matches the methods and functions of pflag and flag that declare a flag.
var flagCall = regexp.MustCompile(`^((Bool|Int|Int32|Int64|Uint|Uint16|Uint32|Uint64|Float64|Duration|String|Count|IP|Text)` +
	`(Slice|Array|ToString)?(Var)?P?|(Bool)?Func|VarP?F?)$`)

// helpFields lists the fields of a cobra.Command that --help prints.
var helpFields = []string{"Use", "Short", "Long", "Example"}

// commandHelp returns the texts that a file's commands print with --help. These are fields of each
// cobra.Command, set in a literal or by assignment, and the texts of flags.
func commandHelp(fset *token.FileSet, file *ast.File) (out []*passage) {
	add := func(e ast.Expr, flag bool) {
		p := &passage{kind: "a help text", flag: flag}
		writeStrings(p, fset, e)
		if strings.ContainsAny(p.text, " \n") {
			out = append(out, p)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if ok && isHelpField(kv.Key) && isCommand(n.Type) {
					add(kv.Value, false)
				}
			}
		case *ast.AssignStmt:
			if s, ok := n.Lhs[0].(*ast.SelectorExpr); ok && len(n.Rhs) == 1 && isHelpField(s.Sel) {
				add(n.Rhs[0], false)
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 2 && flagCall.MatchString(s.Sel.Name) {
				usage := n.Args[len(n.Args)-1]
				if _, isFunc := usage.(*ast.FuncLit); isFunc || strings.HasSuffix(s.Sel.Name, "Func") {
					usage = n.Args[len(n.Args)-2]
				}
				add(usage, true)
			}
		case *ast.GenDecl:
			for _, c := range helpConstants(n) {
				add(c, false)
			}
		}
		return true
	})
	return out
}

// helpConstants returns the values of constants and variables that --help prints, according to
// their names.
func helpConstants(d *ast.GenDecl) (out []ast.Expr) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range v.Names {
			if lower := strings.ToLower(name.Name); i < len(v.Values) &&
				(strings.Contains(lower, "usage") || strings.Contains(lower, "help")) {
				out = append(out, v.Values[i])
			}
		}
	}
	return out
}

func isHelpField(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && slices.Contains(helpFields, id.Name)
}

// isCommand reports whether a literal's type is cobra.Command.
func isCommand(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Command"
}

// writeStrings appends the string literals of an expression. Code between them becomes a
// placeholder word.
func writeStrings(p *passage, fset *token.FileSet, e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			p.write("X", fset.Position(n.Pos()).Line)
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil {
				return false
			}
			line := fset.Position(n.Pos()).Line
			if n.Value[0] != '`' {
				p.write(text, line)
				return false
			}
			for i, part := range strings.SplitAfter(text, "\n") {
				p.write(part, line+i)
			}
		}
		return true
	})
}

var (
	// argparseText matches the places where a Python program passes a text to argparse.
	argparseText = regexp.MustCompile(`\b(help|description|epilog)=\s*\(?\s*`)
	moduleDoc    = regexp.MustCompile(`(?s)^(?:#[^\n]*\n|\s)*r?"""(.*?)"""`)
	pythonString = regexp.MustCompile(`(?s)^[rRfF]?("""(.*?)"""|'''(.*?)'''|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)')\s*`)
)

// argparseHelp returns the texts that a Python program prints with --help.
func argparseHelp(text string) (out []*passage) {
	if !strings.Contains(text, "argparse") {
		return nil
	}
	if m := moduleDoc.FindStringSubmatchIndex(text); m != nil && strings.Contains(text, "=__doc__") {
		p := &passage{kind: "a help text"}
		for i, part := range strings.SplitAfter(text[m[2]:m[3]], "\n") {
			p.write(part, 1+strings.Count(text[:m[2]], "\n")+i)
		}
		out = append(out, p)
	}
	for _, m := range argparseText.FindAllStringSubmatchIndex(text, -1) {
		p := &passage{kind: "a help text", flag: text[m[2]:m[3]] == "help"}
		for at := m[1]; ; {
			s := pythonString.FindStringSubmatch(text[at:])
			if s == nil {
				break
			}
			line := 1 + strings.Count(text[:at], "\n")
			for i, part := range strings.SplitAfter(s[2]+s[3]+s[4]+s[5], "\n") {
				p.write(part, line+i)
			}
			at += len(s[0])
		}
		if p.text != "" {
			out = append(out, p)
		}
	}
	return out
}
