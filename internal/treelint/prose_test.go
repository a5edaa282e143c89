package main

import (
	"strings"
	"testing"
)

// TestProsePatterns: each pattern is found in a text, and is not found in similar correct English.
func TestProsePatterns(t *testing.T) {
	for _, c := range []struct{ text, finds string }{
		{"A client that is not told reads again.", "is-told"},
		{"The controller tells the client.", ""},
		{"The interval is how often it reads.", "is-how"},
		{"This is how often it reads.", ""},
		{"A hint is what a client\nhas read.", "is-what"},
		{"That is what a client has read.", ""},
		{"It is for who has a token.", "fused-who"},
		{"It is for users, who have a token.", ""},
		{"A page is no server.", "is-no"},
		{"There is no server, and it is no longer there.", ""},
		{"One server is no better than another, which is no reason to wait.", ""},
		{"The rest is the node's.", "possessive"},
		{"The rest is the node's work.", ""},
		{"Writes go to the leader alone.", "alone"},
		{"Writes go only to the leader.", ""},
		{"It reads etcd, if it can; else it waits.", "else"},
		{"It reads etcd or something else.", ""},
		{"It says which of both answers.", "of-both"},
		{"The values of both agree.", ""},
		{"From the begin on it waits.", "the-begin"},
		{"From the beginning on it waits.", ""},
		{"The others wait the while they can.", "the-while"},
		{"The while loop ends.", ""},
		{"A client reads what he wrote.", "he"},
		{"The header ends there.", ""},
		{"Wake has a reader look, and has the kernel ask.", "causative-has"},
		{"It has the last word, and goes first.", ""},
		{"It waits where there is a lease.", "where-if"},
		{"It shows where it is.", ""},
	} {
		got := strings.Join(check("docs/x.md", []byte(c.text)), "\n")
		if c.finds == "" && got != "" || !strings.Contains(got, c.finds) {
			t.Errorf("%q: %q, want %q", c.text, got, c.finds)
		}
	}
}

// TestProsePassages: the patterns are searched for in texts that people read, and each finding
// names its line.
func TestProsePassages(t *testing.T) {
	command := func(s string) string { return "package x\n\nfunc f() {\n" + s + "\n}\n" }
	for _, c := range []struct{ what, name, text, finds string }{
		{"the README", "README.md", "# Title\n\nIt is\nsaid.", "README.md:3: prose: is-told in a document"},
		{"a page in a folder", "docs/a/x.md", "It is said.", "is-told"},
		{"a listing", "docs/x.md", "```\nIt is said.\n```", ""},
		{"code in a line", "docs/x.md", "The column `it is said`\nand an [address](is-said).", ""},
		{"another page", "client/x.md", "It is said.", ""},
		{"a package", "api/x.go", "// Package x waits\n// until it is\n// said.\npackage x\n", "api/x.go:2: prose: is-told in a package comment"},
		{"a listing of a package", "api/x.go", "// Package x:\n//\n//\tit is said\npackage x\n", ""},
		{"a comment", "api/x.go", "package x\n\n// f is told.\nfunc f() {}\n", ""},
		{"a command", "api/x.go", command("_ = &cobra.Command{Use: \"x\",\n\tShort: \"Wait until it is \" +\n\t\t\"said\"}"), "api/x.go:5: prose: is-told in a help text"},
		{"an assigned text", "api/x.go", command("c.Long = `x\nis told`"), "api/x.go:5: prose: is-told"},
		{"another literal", "api/x.go", command("_ = Command{Name: \"it is said\"}"), ""},
		{"a flag", "api/x.go", command("f.StringVarP(&x, \"x\", \"y\", \"\", \"name of who asks\")"), "api/x.go:4: prose: fused-who"},
		{"a flag that is a clause", "api/x.go", command("f.DurationVar(&x, \"x\", 0, \"how long it waits\")"), "flag-voice"},
		{"one with a preposition", "api/x.go", command("f.Duration(\"x\", 0, \"for how long it waits\")"), "flag-voice"},
		{"one that is a noun", "api/x.go", command("f.DurationVar(&x, \"x\", 0, \"time that it waits\")"), ""},
		{"a flag with a function", "api/x.go", command("flag.Func(\"x\", \"what it is\", func(string) error { return nil })"), "flag-voice"},
		{"a test's command", "api/x_test.go", command("c.Long = `x is told`"), ""},
		{"a usage", "api/x.go", "package x\n\nconst usage = `x\nit is told`\n", "api/x.go:4: prose: is-told"},
		{"a Python program", "test/x.py", "import argparse\np.add_argument('-x', help='time until '\n  'it is told')", "prose: is-told in a help text"},
		{"its flag", "test/x.py", "import argparse\np.add_argument('-x', help=\"how long\")", "test/x.py:2: prose: flag-voice"},
		{"its description", "test/x.py", "# x\n\"\"\"A program\n\nthat is told.\n\"\"\"\nimport argparse\nargparse.ArgumentParser(description=__doc__)", "test/x.py:4: prose: is-told"},
		{"a Python module", "test/x.py", "\"\"\"A module\nthat is told.\n\"\"\"\n", ""},
	} {
		got := strings.Join(check(c.name, []byte(c.text)), "\n")
		if c.finds == "" && got != "" || !strings.Contains(got, c.finds) {
			t.Errorf("%s: %q, want %q", c.what, got, c.finds)
		}
	}
}
