// Command treelint checks rules in docs/architecture.md that no compiler checks. They concern
// imports between folders, the number of files of a package and its name, the width of lines,
// retired words, and unclear patterns of prose. make lint runs it.
//
//	treelint [FILE ...]
//
// Without files it checks all files that git knows. It prints FILE:LINE: RULE: PROBLEM, and exits
// with 1 if it has printed anything.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	files := os.Args[1:]
	if len(files) == 0 {
		out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").
			Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, "treelint: asking git which files there are:", err)
			os.Exit(2)
		}
		files = strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	}
	wrong, all := 0, packages{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) { // the file was deleted, but is still in git's index
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "treelint:", err)
			os.Exit(2)
		}
		all.add(name, text)
		for _, f := range check(name, text) {
			fmt.Println(f)
			wrong++
		}
	}
	if len(os.Args) < 2 { // all files are known only if no file was named
		for _, f := range all.check() {
			fmt.Println(f)
			wrong++
		}
	}
	if wrong > 0 {
		fmt.Fprintf(
			os.Stderr,
			"treelint: %d findings; docs/architecture.md has the rules and their reasons\n",
			wrong,
		)
		os.Exit(1)
	}
}

// check returns the problems of a file, one line each.
func check(name string, text []byte) []string {
	if generated(name, text) {
		return nil
	}
	var out []string
	if strings.HasSuffix(name, ".go") {
		out = append(append(out, checkImports(name, text)...), checkVerbs(name, text)...)
	}
	out = append(append(out, checkP4(name, text)...), checkWidth(name, text)...)
	return append(append(out, checkWords(name, text)...), checkProse(name, text)...)
}

// generated reports whether a tool writes a file, or whether the file is a copy from another
// project.
func generated(name string, text []byte) bool {
	head, _, _ := strings.Cut(string(text[:min(len(text), 2000)]), "\npackage ")
	return strings.Contains(name, "/testdata/") || strings.Contains(name, "/compiled/") ||
		strings.Contains(head, "Code generated")
}
