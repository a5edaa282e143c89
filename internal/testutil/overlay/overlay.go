// Package overlay builds a package's tests from edited copies of its sources (go help build,
// -overlay). Tests use it to show that other tests notice a mistake. The mistakes are edits, so the
// shipped sources need no options for them.
package overlay

import (
	"encoding/json"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Sources holds changed files of the package in the working directory, with their texts by name.
// The text "" removes a file.
type Sources map[string]string

// Edit replaces old, which must occur once in the file, by new. It ignores comments and empty
// lines, so that rewording a comment breaks no test.
func (s Sources) Edit(t testing.TB, file, old, new string) {
	t.Helper()
	text, ok := s[file]
	if !ok {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = codeOf(string(b))
	}
	old = codeOf(old)
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%s has %d times what an edit changes: %s", file, n, old)
	}
	s[file] = strings.Replace(text, old, new, 1)
}

// Build builds the tests of the package in the working directory from these sources. It returns
// their path, which exists until the end of the test.
func (s Sources) Build(t testing.TB) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := map[string]string{}
	for name, text := range s {
		if replace[filepath.Join(here, name)] = ""; text != "" {
			replace[filepath.Join(here, name)] = write(name, []byte(text))
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "edited.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", write("overlay.json", list), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// codeOf returns Go text, or a part of it, without comments and empty lines.
func codeOf(text string) string {
	var comments scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	comments.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	var b strings.Builder
	kept := 0
	for {
		at, what, comment := comments.Scan()
		if what == token.EOF {
			break
		}
		if what == token.COMMENT && !strings.HasPrefix(comment, "//go:") {
			b.WriteString(text[kept:file.Offset(at)])
			kept = file.Offset(at) + len(comment)
		}
	}
	b.WriteString(text[kept:])
	return emptyLines.ReplaceAllString(b.String(), "\n")
}

var emptyLines = regexp.MustCompile(`[ \t]*\n([ \t]*\n)*`)
