// Command licences checks the licence of every dependency of the tree's Go modules and Node.js
// packages against the list of accepted licences. make licences runs it, and also checks Python's
// dependencies. Maven checks the dependencies of Java (client/java/pom.xml).
//
//	licences [FOLDER]
//
// It reads every go.mod, package.json and package-lock.json below FOLDER that git knows about. The
// text of a Go module's licence comes from the module cache, so build the modules first. The last
// line says how many modules the cache lacks, such as modules for other platforms.
//
// It prints each problem as FILE: DEPENDENCY: PROBLEM, and exits with 1 if it has printed any.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	findings, checked, err := check(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		fmt.Fprintln(os.Stderr, "licences: take another dependency, or add the licence to internal/licences with its reason")
		os.Exit(1)
	}
	fmt.Println("licences:", checked)
}

// check returns the licence problems of the dependencies below root, and a sentence that says how
// many dependencies were checked.
func check(root string) (findings []string, checked string, err error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*go.mod", "*package.json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, "", fmt.Errorf("asking git which files there are: %w", err)
	}
	cache, err := newModuleCache()
	if err != nil {
		return nil, "", err
	}
	npm := 0
	for _, name := range strings.Fields(string(out)) {
		file := filepath.Join(root, name)
		var found []string
		if filepath.Base(name) == "package.json" {
			var n int
			n, found, err = checkNPM(file)
			npm += n
		} else {
			found, err = cache.check(file)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		for _, f := range found {
			findings = append(findings, name+": "+f)
		}
	}
	checked = fmt.Sprintf("%d Go modules and %d Node.js packages have accepted licences", len(cache.verdicts), npm)
	if n := len(cache.lacking); n > 0 {
		checked += fmt.Sprintf("; %d Go modules that this machine has not built are not checked", n)
	}
	return findings, checked, nil
}
