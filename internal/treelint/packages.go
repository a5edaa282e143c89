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

// maxFiles is how many files a Go package has at most, tests not counted. Nobody keeps more in
// mind, and in every package that had more the references between files had no direction.
const maxFiles = 25

// packages are the folders with Go files of the project's, and what is in each.
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
		return // the compiler says so
	}
	dir := path.Dir(file)
	if p[dir] == nil {
		p[dir] = &goPackage{name: parsed.Name.Name}
	}
	p[dir].files++
}

// check gives what is wrong with the packages as a whole, a line each.
func (p packages) check() (out []string) {
	named := map[string][]string{}
	for dir, g := range p {
		if g.files > maxFiles {
			out = append(out, fmt.Sprintf("%s:1: package-size: %d files, %d are the most", dir, g.files, maxFiles))
		}
		if g.name != "main" && g.name != "testutil" { // the second is imported within one folder each
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

// sharedVerbs name dozens of functions each, so that nobody can search for one of them. A method
// has its receiver; a function needs the name of its object, too.
var sharedVerbs = []string{"Take", "Ask", "Tell", "Look", "Leave", "Keep", "At", "Of", "Has"}

// checkVerbs finds exported functions with the name of a shared verb alone.
func checkVerbs(name string, text []byte) (out []string) {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil // the compiler says so
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
