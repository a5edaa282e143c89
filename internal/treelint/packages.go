package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

// maxFiles is the maximum number of files of a Go package, without tests. More files are hard to
// keep in mind, and every larger package had cyclic references between its files.
const maxFiles = 25

// packages holds the project's Go packages, by folder.
type packages map[string]*goPackage

type goPackage struct {
	name  string
	files int
}

// add counts a file, if it belongs to a package.
func (p packages) add(file string, text []byte) {
	if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || generated(file, text) {
		return
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
	if err != nil {
		return // the compiler reports this error
	}
	dir := path.Dir(file)
	if p[dir] == nil {
		p[dir] = &goPackage{name: parsed.Name.Name}
	}
	p[dir].files++
}

// check returns the problems of the packages as a whole, one line each.
func (p packages) check() (out []string) {
	named := map[string][]string{}
	for dir, g := range p {
		if g.files > maxFiles {
			out = append(out, fmt.Sprintf("%s:1: package-size: %d files, %d are the most", dir, g.files, maxFiles))
		}
		if g.name != "main" && g.name != "testutil" { // each testutil package is imported only within one folder
			named[g.name] = append(named[g.name], dir)
		}
	}
	for name, dirs := range named {
		if slices.Sort(dirs); len(dirs) > 1 {
			out = append(out, fmt.Sprintf("%s:1: package-name: %s is the name of %s, too: whoever reads it in a third "+
				"package cannot tell which is meant", dirs[0], name, strings.Join(dirs[1:], " and ")))
		}
	}
	slices.Sort(out)
	return out
}

// sharedVerbs lists verbs that could be the name of dozens of functions, so that no one could
// search for such a function. A method's receiver names the method's object. A function's name must
// include the object.
var sharedVerbs = []string{"Take", "Ask", "Tell", "Look", "Leave", "Keep", "At", "Of", "Has"}

// checkVerbs finds exported functions whose name is only a shared verb.
func checkVerbs(name string, text []byte) (out []string) {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil // the compiler reports this error
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && slices.Contains(sharedVerbs, f.Name.Name) {
			out = append(out, fmt.Sprintf("%s:%d: shared-verb: %s: name what it is done to as well", name,
				fset.Position(f.Pos()).Line, f.Name.Name))
		}
	}
	return out
}
