package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestPackages checks trees of files, and the findings for each tree as a whole.
func TestPackages(t *testing.T) {
	many := map[string]string{}
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("switch/x/f%d.go", i)] = "package x"
	}
	for _, c := range []struct {
		what  string
		files map[string]string
		finds string // part of the finding; "" if there is none
	}{
		{"one file too many", many, "switch/x:1: package-size: 26 files"},
		{"one name twice", map[string]string{"a/core/x.go": "package core", "b/core/x.go": "package core"}, "package-name: core is the name of b/core, too"},
		{"a name and its tests", map[string]string{"a/core/x.go": "package core", "b/core/x_test.go": "package core"}, ""},
		{"commands", map[string]string{"a/x.go": "package main", "b/x.go": "package main"}, ""},
	} {
		all := packages{}
		for name, text := range c.files {
			all.add(name, []byte(text))
		}
		got := strings.Join(all.check(), "\n")
		if c.finds == "" && got != "" || !strings.Contains(got, c.finds) {
			t.Errorf("%s: %q, want %q", c.what, got, c.finds)
		}
	}
	got := strings.Join(check("switch/x/x.go", []byte("package x\n\nfunc Keep() {}\n")), "\n")
	if !strings.Contains(got, "switch/x/x.go:3: shared-verb: Keep") {
		t.Errorf("a function with a shared verb's name: %q", got)
	}
	if got := check("switch/x/x.go", []byte("package x\n\nfunc (x *X) Keep() {}\n")); len(got) > 0 {
		t.Errorf("a method has its receiver: %q", got)
	}
}
