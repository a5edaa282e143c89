// Package overlay builds a package's tests from edited copies of its sources, for tests that show
// that others notice a mistake: the mistakes are edits, so that the shipped sources need no
// switches for them (go help build, -overlay).
package overlay

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Sources are the files of the package in the working directory that are others than on the disk:
// their texts by name. "" takes a file away.
type Sources map[string]string

// Edit replaces old, which the file has once, by new.
func (s Sources) Edit(t testing.TB, file, old, new string) {
	t.Helper()
	text, ok := s[file]
	if !ok {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%s has %d times what an edit changes: %s", file, n, old)
	}
	s[file] = strings.Replace(text, old, new, 1)
}

// Build builds the tests of the package in the working directory with them. It returns where they
// are, until the end of the test.
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
